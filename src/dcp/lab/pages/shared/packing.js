// Arrays as short text, as dcp.lab.pages writes them.

const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

// float32, low byte first: exactly the numbers that Python has.
export function floats(text) {
  const bytes = bytesOf(text), words = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 4 }, (_, i) => words.getFloat32(4 * i, true));
}

export const bytes = bytesOf;

// uint16, low byte first, each channel (of the last axis) within its own range.
export function unpack(packed) {
  if (!packed) return null;
  const words = new DataView(bytesOf(packed.data).buffer), channels = packed.low.length;
  const values = new Float32Array(words.byteLength / 2);
  for (let i = 0; i < values.length; i++) {
    const c = i % channels;
    values[i] = packed.low[c] + (words.getUint16(2 * i, true) / 65535) * (packed.high[c] - packed.low[c]);
  }
  const rowSize = packed.shape.slice(1).reduce((a, b) => a * b, 1);
  return { rows: packed.shape[0], rowSize, at: (row) => values.subarray(row * rowSize, (row + 1) * rowSize) };
}
