// What the report knows, as Python wrote it.

import { readData } from "../shared/dom.js";

export const DATA = readData();
