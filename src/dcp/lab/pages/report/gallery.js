// Episodes stand still until they are pointed at or tapped; pictures open large.

import { all } from "../shared/dom.js";
import { DATA } from "./data.js";

export function connectGallery() {
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  for (const card of all(".episode[data-moving]")) {
    const image = card.querySelector("img");
    const still = image.src;
    const play = (on) => {
      card.classList.toggle("playing", on);
      image.src = on ? DATA.moving[Number(card.dataset.moving)] : still;
    };
    const hovers = (event) => event.pointerType === "mouse" && !calm.matches;
    card.addEventListener("pointerenter", (event) => { if (hovers(event)) play(true); });
    card.addEventListener("pointerleave", (event) => { if (hovers(event)) play(false); });
    card.querySelector("button").addEventListener("click", (event) => {
      if (!hovers(event)) play(!card.classList.contains("playing"));
    });
  }
}

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
