// Pictures open large.

import { all } from "../shared/dom.js";

export function connectPictures() {
  const dialog = document.getElementById("large");
  const image = dialog.querySelector("img");
  for (const button of all("button.picture")) {
    button.addEventListener("click", () => {
      const small = button.querySelector("img");
      image.src = small.src;
      image.alt = small.alt;
      dialog.showModal();
    });
  }
  dialog.addEventListener("click", () => dialog.close());
}
