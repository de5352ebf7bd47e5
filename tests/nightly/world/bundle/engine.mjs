// Run the bundle in onnxruntime, for Node or as wasm: node engine.mjs BUNDLE PACKAGE FOLDER
import { readFileSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";

const [bundle, engine, folder] = process.argv.slice(2);
const { InferenceSession, Tensor } = createRequire(`${folder}/`)(engine);
const kinds = { 1: ["float32", Float32Array], 7: ["int64", BigInt64Array], 9: ["bool", Uint8Array] };

// the fields of a TensorProto: 1 dims, 2 data_type, 8 name, 9 raw_data
function tensor(bytes) {
  const dims = [];
  let at = 0, kind, name, raw = new Uint8Array();
  const number = () => {
    let value = 0, place = 1, byte;
    do { byte = bytes[at++]; value += (byte & 127) * place; place *= 128; } while (byte > 127);
    return value;
  };
  while (at < bytes.length) {
    const key = number(), value = number(), part = key & 7 ? bytes.subarray(at, (at += value)) : 0;
    if (key >> 3 === 1) dims.push(value);
    if (key >> 3 === 2) kind = kinds[value];
    if (key >> 3 === 8) name = String(part);
    if (key >> 3 === 9) raw = Uint8Array.from(part);
  }
  return [name, new Tensor(kind[0], new kind[1](raw.buffer), dims)];
}

async function why(folder, tolerance) {
  const names = readdirSync(`${folder}/test_data_set_0`).sort();
  const tensors = names.map((name) => tensor(readFileSync(`${folder}/test_data_set_0/${name}`)));
  const [, want] = tensors.pop();
  try {
    const session = await InferenceSession.create(readFileSync(`${folder}/model.onnx`));
    const got = (await session.run(Object.fromEntries(tensors))).y;
    if (`${got.dims}` !== `${want.dims}`) return `its shape is ${got.dims}, and should be ${want.dims}`;
    const [found, right] = [got, want].map(({ data }) => Array.from(data, Number)); // also of BigInt
    const worst = Math.max(0, ...right.map((y, k) => Math.abs(found[k] - y)));
    const error = worst / Math.max(1, ...right.map(Math.abs));
    return error <= tolerance ? "" : `the error is ${error.toPrecision(2)}`;
  } catch (error) {
    return String(error.message ?? error).replace(/\s+/g, " ").slice(-200);
  }
}

const failing = [], { cases } = JSON.parse(readFileSync(`${bundle}/cases.json`));
for (const { folder, tolerance } of cases) {
  const reason = await why(`${bundle}/${folder}`, tolerance.float32);
  if (reason) failing.push({ case: folder, why: reason });
}
console.log(JSON.stringify({ run: cases.length, passed: cases.length - failing.length, failing }));
