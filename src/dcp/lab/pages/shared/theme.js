// Light or dark: as the system says, until the reader says otherwise.

const root = document.documentElement;
const prefersDark = matchMedia("(prefers-color-scheme: dark)");

export const isDark = () => (root.dataset.theme || (prefersDark.matches ? "dark" : "light")) === "dark";

export function connectTheme(button, changed = () => {}) {
  const name = () => button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"}`);
  button.addEventListener("click", () => { setTheme(isDark() ? "light" : "dark"); name(); changed(); });
  prefersDark.addEventListener("change", () => { name(); changed(); });
  name();
}

export function setTheme(theme) { root.dataset.theme = theme; }

// The value of a custom property of the style sheet, such as --ink.
export const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
