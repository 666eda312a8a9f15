export { contours } from "d3-contour";
