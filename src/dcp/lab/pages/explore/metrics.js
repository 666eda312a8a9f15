// Distances between two psi's, from the first to the second: the critics' own.

// metric: {kind, components, mix}, as the policy's critic has them. -> (from, at, to, size) => number, where the first
// psi begins at `at` of `from`, so that many may lie behind each other.
export function makeMetric({ kind, components, mix }) {
  if (kind === "norm") return norm;
  return kind === "mrn" ? (from, at, to, size) => mrn(from, at, to, size, components) : iqe(components, mix);
}

function norm(from, at, to, size) {
  let square = 0;
  for (let i = 0; i < size; i++) { const gap = from[at + i] - to[i]; square += gap * gap; }
  return Math.sqrt(square);
}

// dcp.critics.quasimetric.mrn: over components, the mean of a one-way maximum and a norm.
function mrn(from, at, to, size, components) {
  const each = size / components, half = each / 2;
  let total = 0;
  for (let c = 0; c < components; c++) {
    let most = 0, square = 0;
    for (let i = c * each; i < c * each + half; i++) most = Math.max(most, from[at + i] - to[i]);
    for (let i = c * each + half; i < (c + 1) * each; i++) square += (from[at + i] - to[i]) ** 2;
    total += most + Math.sqrt(square);
  }
  return total / components;
}

// dcp.critics.quasimetric.iqe: lengths of unions of intervals [x_i, max(x_i, y_i)], their mean and maximum mixed.
function iqe(components, mix) {
  const share = 1 / (1 + Math.exp(-mix));
  return (from, at, to, size) => {
    const each = size / components;
    let sum = 0, most = 0;
    for (let c = 0; c < components; c++) {
      const places = Array.from({ length: each }, (_, i) => c * each + i).sort((a, b) => from[at + a] - from[at + b]);
      let length = 0, reached = -Infinity;
      for (const i of places) {
        const left = from[at + i], right = Math.max(left, to[i]);
        length += Math.max(0, right - Math.max(left, reached));
        reached = Math.max(reached, right);
      }
      sum += length;
      most = Math.max(most, length);
    }
    return (share * sum) / components + (1 - share) * most;
  };
}
