/* Runs a translated program (homing.share.program): fills its memory with constants and names its arrays. */
"use strict";

const HOST = {
  exp: Math.exp, log: Math.log, sin: Math.sin, cos: Math.cos, tan: Math.tan, asin: Math.asin, acos: Math.acos,
  atan: Math.atan, sinh: Math.sinh, cosh: Math.cosh, tanh: Math.tanh, asinh: Math.asinh, acosh: Math.acosh,
  atanh: Math.atanh, expm1: Math.expm1, log1p: Math.log1p, cbrt: Math.cbrt, atan2: Math.atan2, pow: Math.pow,
  exp2: (x) => Math.pow(2, x),
  logistic: (x) => 1 / (1 + Math.exp(-x)),
  erf,
  rem: (a, b) => a % b,
  int_div: (a, b) => Math.trunc(a / b),
};

/* Series near 0, a continued fraction of the complement elsewhere. */
function erf(x) {
  const size = Math.abs(x);
  if (Number.isNaN(x)) return x;
  if (size > 6) return Math.sign(x);
  if (size < 2) {
    let term = x, sum = x;
    for (let n = 1; n < 40; n++) {
      term *= (-x * x) / n;
      sum += term / (2 * n + 1);
    }
    return (2 / Math.sqrt(Math.PI)) * sum;
  }
  let fraction = 0;
  for (let n = 60; n > 0; n--) fraction = n / 2 / (size + fraction);
  return Math.sign(x) * (1 - Math.exp(-size * size) / (Math.sqrt(Math.PI) * (size + fraction)));
}

/* A float16 (bits) as a number. */
function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

function fill(memory, segments, data) {
  const table = new Float32Array(65536);
  if (segments.some(([, kind]) => kind === "f16")) for (let k = 0; k < 65536; k++) table[k] = half(k);
  let at = 0;
  for (const [address, kind, bytes] of segments) {
    const source = data.slice(at, at + bytes);
    at += bytes;
    if (kind === "words") new Uint8Array(memory.buffer, address, bytes).set(source);
    const short = kind === "words" ? [] : new Uint16Array(source.buffer);
    const bits = new Uint32Array(memory.buffer, address, short.length);
    const numbers = new Float32Array(memory.buffer, address, short.length);
    if (kind === "bf16") for (let k = 0; k < short.length; k++) bits[k] = short[k] << 16;
    if (kind === "f16") for (let k = 0; k < short.length; k++) numbers[k] = table[short[k]];
  }
}

/* `arrays[name]` are views into memory, `call[name]()` runs an exported function. */
async function makeMachine(description, code, constants) {
  const memory = new WebAssembly.Memory({ initial: description.pages });
  fill(memory, description.segments, constants);
  const { instance } = await WebAssembly.instantiate(code, { host: { memory, ...HOST } });
  const arrays = {};
  for (const [name, [address, count, kind]] of Object.entries(description.buffers)) {
    const Kind = kind === "f32" ? Float32Array : Int32Array;
    arrays[name] = new Kind(memory.buffer, address, count);
  }
  return { arrays, call: instance.exports };
}

if (typeof module !== "undefined") module.exports = { makeMachine };
