// The decoder of "Ask it yourself", beside the page: it fetches a scheme's weights once and answers one question after
// the other.
"use strict";

const HEADS = 4, LAYERS = 2, TRAINED = 48;
const models = {};

function half(bits) {
  const exponent = (bits >> 10) & 31, fraction = (bits & 1023) / 1024;
  const size = exponent ? (1 + fraction) * 2 ** (exponent - 15) : fraction * 2 ** -14;
  return bits >> 15 ? -size : size;
}

async function fetched(scheme) { // safetensors: the size of the header, the header, the numbers
  const answer = await fetch(`decoders/${scheme.toLowerCase()}/model.safetensors`);
  if (!answer.ok) throw Error(answer.status);
  const buffer = await answer.arrayBuffer(), start = 8 + new DataView(buffer).getUint32(0, true);
  const entries = JSON.parse(new TextDecoder().decode(buffer.slice(8, start)));
  const read = ([from, to]) => Float64Array.from(new Uint16Array(buffer.slice(start + from, start + to)), half);
  const weight = (name) => weight[name] ||= read(entries[`${name}.weight`].data_offsets);
  return { known: entries.__metadata__.words.split(" "), weight };
}

function dot(a, b, from = 0, start = 0, length = a.length) {
  let sum = 0;
  for (let c = 0; c < length; c += 1) sum += a[from + c] * b[start + c];
  return sum;
}

const plus = (rows, more) => rows.map((x, i) => x.map((value, c) => value + more[i][c]));
const project = (rows, weight) => rows.map((x) =>
  new Float64Array(weight.length / x.length).map((_, o) => dot(x, weight, 0, o * x.length)));

const norm = (rows, weight) => rows.map((x) => {
  const size = Math.sqrt(dot(x, x) / x.length + 1e-6);
  return x.map((value, c) => value / size * weight[c]);
});

function softmax(scores) {
  const most = Math.max(...scores), powers = scores.map((score) => Math.exp(score - most));
  const total = powers.reduce((sum, power) => sum + power, 0);
  return powers.map((power) => power / total);
}

function rotate(rows, positions, width, method, factor) {
  const slow = Math.ceil(width * Math.log(TRAINED / (2 * Math.PI)) / (2 * Math.log(1e4)));
  const sharper = method === "YaRN" ? 0.1 * Math.log(factor) + 1 : 1;
  for (let j = 0; j < width / 2; j += 1) { // no pair makes 32 turns in training: YaRN's blend begins at pair 0
    const slowed = { YaRN: Math.min(1, j / slow), interpolation: 1, none: 0 }[method];
    const frequency = 1e4 ** (-2 * j / width) * (slowed / factor + 1 - slowed);
    rows.forEach((x, i) => {
      const cos = sharper * Math.cos(positions[i] * frequency), sin = sharper * Math.sin(positions[i] * frequency);
      for (let a = j, b = j + width / 2; b < x.length; a += width, b += width) {
        [x[a], x[b]] = [x[a] * cos - x[b] * sin, x[a] * sin + x[b] * cos];
      }
    });
  }
}

// The probabilities of the next word, and for each head of each layer the weights of each query.
function run(weight, tokens, { scheme, positions, method, factor }) {
  const dim = weight("model.norm").length, width = dim / HEADS, maps = [];
  let x = tokens.map((token) => weight("model.embed_tokens").slice(token * dim, (token + 1) * dim));
  for (let layer = 0; layer < LAYERS; layer += 1) {
    const part = (name) => weight(`model.layers.${layer}.${name}`), normed = norm(x, part("input_layernorm"));
    const [query, key, value] = ["q", "k", "v"].map((role) => project(normed, part(`self_attn.${role}_proj`)));
    if (scheme === "rotary") for (const rows of [query, key]) rotate(rows, positions, width, method, factor);
    const mixed = x.map(() => new Float64Array(dim));
    for (let head = 0; head < HEADS; head += 1) {
      const from = head * width, slope = scheme === "ALiBi" ? 4 ** -(head + 1) : 0;
      maps.push(query.map((q, i) => {
        const weights = softmax(Array.from({ length: i + 1 }, (_, j) =>
          dot(q, key[j], from, from, width) / Math.sqrt(width) - slope * (positions[i] - positions[j])));
        for (let j = 0; j <= i; j += 1) for (let c = from; c < from + width; c += 1) mixed[i][c] += weights[j] * value[j][c];
        return weights;
      }));
    }
    x = plus(x, project(mixed, part("self_attn.o_proj")));
    const fed = norm(x, part("post_attention_layernorm")), up = project(fed, part("mlp.up_proj"));
    const gated = project(fed, part("mlp.gate_proj")).map((row, i) => row.map((g, c) => g / (1 + Math.exp(-g)) * up[i][c]));
    x = plus(x, project(gated, part("mlp.down_proj")));
  }
  return { probabilities: softmax(project(norm(x.slice(-1), weight("model.norm")), weight("lm_head"))[0]), maps };
}

async function answer(asked) {
  const { known, weight } = await (models[asked.scheme] ||= fetched(asked.scheme));
  return { known, ...run(weight, asked.words.map((word) => known.indexOf(word)), asked) };
}

let last = Promise.resolve();
addEventListener("message", ({ data }) => {
  last = last.then(() => answer(data)).then(postMessage, ({ message }) => {
    delete models[data.scheme]; // which may come another time
    postMessage({ fault: message });
  });
});
