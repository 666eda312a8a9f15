// Draws bodies in three dimensions, or points in their maze.

import { byId } from "../shared/dom.js";
import { bodiesView } from "./bodies.js";
import { mazeView } from "./maze.js";
import { data, start } from "./viewer.js";

start((data.kind === "bodies" ? bodiesView : mazeView)(byId("view")));
