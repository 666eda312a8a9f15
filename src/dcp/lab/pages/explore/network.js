// psi_g and the actor as plain arrays: what dcp.networks.MLP computes, layer by layer.

import { floats } from "../shared/packing.js";

export const BLOCK = 32; // points that are computed at once

export class Network {
  // description: {layers: [{inputs, outputs, norm, activation, residual}], weights: base64 of float32}
  constructor(description, epsilon) {
    const numbers = floats(description.weights);
    let used = 0;
    const take = (count) => numbers.subarray(used, (used += count));
    this.epsilon = epsilon;
    this.layers = description.layers.map((layer) => ({
      ...layer,
      kernel: transposed(take(layer.inputs * layer.outputs), layer.inputs, layer.outputs), // [out, in]
      bias: take(layer.outputs),
      scale: layer.norm ? take(layer.outputs) : null,
      shift: layer.norm ? take(layer.outputs) : null,
      block: new Float64Array(BLOCK * layer.outputs),
    }));
    this.outputs = this.layers.at(-1).outputs;
  }

  // [inputs] -> [outputs], valid until the next call
  run(input) { return this.runBlock(input, 1).subarray(0, this.outputs); }

  // Up to BLOCK inputs behind each other -> as many outputs behind each other, valid until the next call
  runBlock(input, count) {
    let x = input, skip = input;
    this.layers.forEach((layer, number) => {
      const h = layer.block, size = layer.outputs;
      multiply(layer, x, count, h);
      for (let at = 0; at < count * size; at += size) {
        for (let o = 0; o < size; o++) h[at + o] += layer.bias[o];
        if (!layer.norm && !layer.activation) continue;
        const one = h.subarray(at, at + size);
        if (layer.norm) normalise(one, layer, this.epsilon);
        if (layer.activation) ACTIVATIONS[layer.activation].value(one);
      }
      if (layer.residual) for (let i = 0; i < count * size; i++) h[i] += skip[i];
      if (layer.residual || number === 0) skip = h;
      x = h;
    });
    return x;
  }

  // The output and its derivatives by the first two inputs: {value [D], byX [D], byY [D]}, each its own array.
  runWithSlopes(input) {
    const basis = [0, 1].map((k) => Float64Array.from(input, (_, i) => (i === k ? 1 : 0)));
    let x = Float64Array.from(input), slopes = basis, skip = x, skipSlopes = basis;
    this.layers.forEach((layer, number) => {
      const [h, ...d] = [x, ...slopes].map((values) => {
        const out = new Float64Array(layer.outputs);
        multiply(layer, values, 1, out);
        return out;
      });
      for (let o = 0; o < h.length; o++) h[o] += layer.bias[o];
      if (layer.norm) normalise(h, layer, this.epsilon, d);
      if (layer.activation) ACTIVATIONS[layer.activation].slopes(h, d);
      if (layer.residual) {
        for (let i = 0; i < h.length; i++) { h[i] += skip[i]; d.forEach((slope, k) => { slope[i] += skipSlopes[k][i]; }); }
      }
      if (layer.residual || number === 0) [skip, skipSlopes] = [h, d];
      [x, slopes] = [h, d];
    });
    return { value: x, byX: slopes[0], byY: slopes[1] };
  }
}

function transposed(kernel, inputs, outputs) {
  const out = new Float64Array(kernel.length);
  for (let i = 0; i < inputs; i++) for (let o = 0; o < outputs; o++) out[o * inputs + i] = kernel[i * outputs + o];
  return out;
}

// x [count, in] -> out [count, out], without the bias; four points share each number of the kernel.
function multiply({ inputs, outputs, kernel }, x, count, out) {
  let p = 0;
  for (; p + 3 < count; p += 4) {
    const a = p * inputs, b = a + inputs, c = b + inputs, d = c + inputs, to = p * outputs;
    for (let o = 0; o < outputs; o++) {
      const from = o * inputs;
      let s = 0, t = 0, u = 0, v = 0;
      for (let i = 0; i < inputs; i++) {
        const k = kernel[from + i];
        s += k * x[a + i]; t += k * x[b + i]; u += k * x[c + i]; v += k * x[d + i];
      }
      out[to + o] = s; out[to + outputs + o] = t; out[to + 2 * outputs + o] = u; out[to + 3 * outputs + o] = v;
    }
  }
  for (; p < count; p++) {
    for (let o = 0; o < outputs; o++) {
      let s = 0;
      for (let i = 0; i < inputs; i++) s += kernel[o * inputs + i] * x[p * inputs + i];
      out[p * outputs + o] = s;
    }
  }
}

// LayerNorm in place; with `slopes`, theirs too.
function normalise(h, { scale, shift }, epsilon, slopes = []) {
  const n = h.length;
  let sum = 0, squares = 0;
  for (let i = 0; i < n; i++) { sum += h[i]; squares += h[i] * h[i]; }
  const mean = sum / n, deviation = Math.sqrt(Math.max(squares / n - mean * mean, 0) + epsilon);
  for (let i = 0; i < n; i++) h[i] = (h[i] - mean) / deviation;
  for (const slope of slopes) {
    let meanSlope = 0, along = 0;
    for (let i = 0; i < n; i++) { meanSlope += slope[i] / n; along += (h[i] * slope[i]) / n; }
    for (let i = 0; i < n; i++) slope[i] = (scale[i] * (slope[i] - meanSlope - h[i] * along)) / deviation;
  }
  for (let i = 0; i < n; i++) h[i] = h[i] * scale[i] + shift[i];
}

const ACTIVATIONS = {
  swish: {
    value(h) { for (let i = 0; i < h.length; i++) h[i] /= 1 + Math.exp(-h[i]); },
    slopes(h, slopes) {
      for (let i = 0; i < h.length; i++) {
        const gate = 1 / (1 + Math.exp(-h[i])), slope = gate * (1 + h[i] * (1 - gate));
        for (const d of slopes) d[i] *= slope;
        h[i] *= gate;
      }
    },
  },
  relu: {
    value(h) { for (let i = 0; i < h.length; i++) if (h[i] < 0) h[i] = 0; },
    slopes(h, slopes) {
      for (let i = 0; i < h.length; i++) if (h[i] <= 0) { h[i] = 0; for (const d of slopes) d[i] = 0; }
    },
  },
};
