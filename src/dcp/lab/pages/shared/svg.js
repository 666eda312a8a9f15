// Elements of an SVG drawing.

import { fill } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";

export function shape(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}
