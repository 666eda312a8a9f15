// Numbers for people.

const UNITS = [[86400, "days", "d"], [3600, "hours", "h"], [60, "minutes", "min"], [1, "seconds", "s"]];

export function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

// 1500000 -> "1.5M"
export function humanCount(number) {
  for (const [size, unit] of [[1e9, "B"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(number) >= size) return `${Number((number / size).toPrecision(4))}${unit}`;
  }
  return `${Number(number.toPrecision(4))}`;
}

export function timeUnit(longest) {
  return UNITS.find(([size]) => longest >= 2 * size) || UNITS[UNITS.length - 1];
}

// 11520 -> "3 h 12 min"
export function humanTime(seconds) {
  const at = UNITS.findIndex(([size]) => seconds >= size);
  if (at < 0 || at === UNITS.length - 1) return `${seconds.toFixed(0)} s`;
  const [[size, , unit], [smaller, , part]] = [UNITS[at], UNITS[at + 1]];
  const whole = Math.floor(seconds / size);
  const rest = Math.floor((seconds - whole * size) / smaller);
  return rest ? `${whole} ${unit} ${rest} ${part}` : `${whole} ${unit}`;
}

// Round numbers from 0 to `top`, about `count` of them.
export function ticks(top, count) {
  if (!(top > 0)) return [0];
  const size = 10 ** Math.floor(Math.log10(top / count));
  const step = size * [1, 2, 2.5, 5, 10].find((s) => s * size * count >= top * 0.85);
  return Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, i) => i * step);
}

export function nearest(sorted, x) {
  let best = -1;
  sorted.forEach((at, i) => {
    if (isNumber(at) && (best < 0 || Math.abs(at - x) < Math.abs(sorted[best] - x))) best = i;
  });
  return best;
}
