// What the reader chose. Nothing chosen means everything; the first choice means only this one.

import { all } from "../shared/dom.js";
import { DATA } from "./data.js";

export const state = {
  axis: DATA.axis,
  range: "full",
  seeds: true,
  chosen: { environment: new Set(), method: new Set() },

  shows(kind, index) {
    return !this.chosen[kind].size || this.chosen[kind].has(index);
  },

  toggle(kind, index) {
    const set = this.chosen[kind];
    if (!set.delete(index)) set.add(index);
    if (set.size === DATA[`${kind}s`].length) set.clear();
  },
};

// Elements name their environments and methods by number: data-environment="0 3". Without numbers they always show.
function belongs(node, kind) {
  const numbers = node.dataset[kind];
  return numbers === undefined || numbers.split(" ").some((n) => state.shows(kind, Number(n)));
}

export function applyFilters() {
  for (const node of all("main [data-environment], main [data-method]")) {
    node.hidden = !(belongs(node, "environment") && belongs(node, "method"));
  }
  for (const chip of all("[data-choose]")) {
    chip.setAttribute("aria-pressed", state.chosen[chip.dataset.choose].has(Number(chip.dataset.index)));
  }
  for (const button of all("[data-everything]")) button.hidden = !state.chosen[button.dataset.everything].size;
  for (const part of all("[data-emptied]")) {
    const rows = all(part.dataset.emptied, part);
    part.classList.toggle("emptied", rows.length > 0 && rows.every((row) => row.hidden));
  }
}

export function connectFilters(redraw) {
  for (const chip of all("[data-choose]")) {
    chip.addEventListener("click", () => {
      state.toggle(chip.dataset.choose, Number(chip.dataset.index));
      redraw();
    });
  }
  for (const button of all("[data-everything]")) {
    button.addEventListener("click", () => {
      state.chosen[button.dataset.everything].clear();
      redraw();
    });
  }
}

// A switch is a row of buttons of which one is pressed: data-switch="axis" data-value="seconds".
export function connectSwitches(redraw) {
  const press = () => {
    for (const button of all("[data-switch]")) {
      button.setAttribute("aria-pressed", String(state[button.dataset.switch]) === button.dataset.value);
    }
  };
  for (const button of all("[data-switch]")) {
    button.addEventListener("click", () => {
      const { switch: name, value } = button.dataset;
      state[name] = { true: true, false: false }[value] ?? value;
      press();
      redraw();
    });
  }
  press();
}
