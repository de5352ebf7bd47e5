// The decoder of "Ask it yourself": it fetches its weights when the reader presses Start, and computes in the
// page what a test compares with the library.
"use strict";

(() => {
  const HEADS = 4, MAPS = 8, TRAINED = 48, MOST = 256;
  const NOUNS = "dog man fox king cat bird boy wolf".split(" "), VERBS = "bites sees hears likes".split(" ");
  const STORY = "the dog bites the man . the fox sees the king . the cat hears the bird . whom does the fox see ?";

  function half(bits) {
    const exponent = (bits >> 10) & 31, fraction = (bits & 1023) / 1024;
    const size = exponent ? (1 + fraction) * 2 ** (exponent - 15) : fraction * 2 ** -14;
    return bits >> 15 ? -size : size;
  }

  async function fetched(scheme) { // safetensors: the size of the header, the header, the numbers
    if (folder.startsWith("file:")) throw Error("a page that is opened as a file may not fetch, so serve it: python -m http.server");
    const answer = await fetch(`${folder}${scheme.toLowerCase()}/model.safetensors`);
    if (!answer.ok) throw Error(answer.status);
    const buffer = await answer.arrayBuffer(), start = 8 + new DataView(buffer).getUint32(0, true);
    const entries = JSON.parse(new TextDecoder().decode(buffer.slice(8, start)));
    const read = ([from, to]) => Float64Array.from(new Uint16Array(buffer.slice(start + from, start + to)), half);
    const weight = (name) => weight[name] ||= read(entries[`${name}.weight`].data_offsets);
    return { known: entries.__metadata__.words.split(" "), weight };
  }

  const sum = (xs, term) => xs.reduce((all, x, i) => all + term(x, i), 0);
  const plus = (rows, more) => rows.map((x, i) => x.map((value, c) => value + more[i][c]));
  const project = (rows, weight) => rows.map((x) => {
    const y = new Float64Array(weight.length / x.length);
    for (let o = 0, at = 0; o < y.length; o += 1) for (let c = 0; c < x.length; c += 1) y[o] += weight[at++] * x[c];
    return y;
  });

  const norm = (rows, weight) => rows.map((x) => {
    const size = Math.sqrt(sum(x, (value) => value * value) / x.length + 1e-6);
    return x.map((value, c) => value / size * weight[c]);
  });

  function softmax(scores) {
    const most = Math.max(...scores), powers = scores.map((score) => Math.exp(score - most));
    const total = sum(powers, (power) => power);
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
  function run(weight, tokens, positions, scheme, method, factor) {
    const dim = weight("model.norm").length, width = dim / HEADS, maps = [];
    let x = tokens.map((token) => weight("model.embed_tokens").slice(token * dim, (token + 1) * dim));
    for (let layer = 0; layer < MAPS / HEADS; layer += 1) {
      const part = (name) => weight(`model.layers.${layer}.${name}`), normed = norm(x, part("input_layernorm"));
      const [query, key, value] = ["q", "k", "v"].map((role) => project(normed, part(`self_attn.${role}_proj`)));
      if (scheme === "rotary") for (const rows of [query, key]) rotate(rows, positions, width, method, factor);
      const mixed = x.map(() => new Float64Array(dim));
      for (let head = 0; head < HEADS; head += 1) {
        const own = (rows) => rows.map((row) => row.subarray(head * width, (head + 1) * width));
        const [k, v, read] = [key, value, mixed].map(own), slope = scheme === "ALiBi" ? 4 ** -(head + 1) : 0;
        maps.push(own(query).map((q, i) => {
          const weights = softmax(k.slice(0, i + 1).map((one, j) =>
            sum(q, (entry, c) => entry * one[c]) / Math.sqrt(width) - slope * (positions[i] - positions[j])));
          read[i].set(read[i].map((_, c) => sum(weights, (weight, j) => weight * v[j][c])));
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

  // --- The page.
  const control = (text, input) => `<label class="control">${text} ${input}</label>`;
  const select = (text, name, options) =>
    control(text, `<select name="${name}">${options.map((option) => `<option>${option}</option>`).join("")}</select>`);
  const slider = (text, name, min, max) =>
    control(text, `<input type="range" name="${name}" min="${min}" max="${max}" value="${min}"><output></output>`);
  const buttons = (texts) => `<div class="words">${texts.map((text) => `<button type="button">${text}</button>`).join("")}</div>`;
  const best = (weights) => [...weights.entries()].sort((a, b) => b[1] - a[1]).slice(0, 3);

  // Each noun does each thing to another one, and no two do the same to the same one.
  const FACTS = Array.from({ length: 32 }, (_, n) => {
    const who = (5 * n + (n >> 3)) % 8, whom = ([1, 5, 3, 7][n % 4] * who + 1) % 8;
    return `the ${NOUNS[who]} ${VERBS[n % 4]} the ${NOUNS[whom]} .`;
  });

  const split = (text) => text.toLowerCase().match(/[a-z]+|[^\sa-z]/g) || [];

  function longer(words) {
    const asked = words.lastIndexOf(".") + 1, more = FACTS.filter((fact) => !words.join(" ").includes(fact));
    return [...words.slice(0, asked), ...more.slice(0, 4), ...words.slice(asked)];
  }

  const EDITS = { "take a word back": (words) => words.slice(0, -1), "add four facts": longer, "first story": () => [STORY] };
  const NAMES = Array.from({ length: MAPS }, (_, h) => `layer ${Math.floor(h / HEADS)}, head ${h % HEADS}`);

  function build(form, first) {
    const models = { rotary: first }, { known } = first;
    let words, maps;
    form.innerHTML = control("story and question", '<textarea name="text" rows="4" spellcheck="false"></textarea>')
      + buttons(known) + buttons(Object.keys(EDITS)) + '<div class="controls">'
      + select("scheme", "scheme", ["rotary", "ALiBi", "none"]) + slider("shift of positions", "shift", 0, 200)
      + control("shift only the question", '<input type="checkbox" name="only">')
      + select("extension", "method", ["none", "interpolation", "YaRN"]) + slider("factor", "factor", 1, 8)
      + '</div><p class="said" role="status"></p><div><ol></ol><div class="maps">'
      + NAMES.map((name) => `<figure><figcaption>${name}</figcaption><canvas></canvas></figure>`).join("") + '</div><div class="controls">'
      + select("head to read", "head", NAMES) + slider("query to read", "row", 0, 0) + '</div><p class="read"></p><p class="reading"></p></div>';
    const { text, scheme, shift, only, method, factor, head, row } = form.elements;
    const [said, list, read, reading] = [".said", "ol", ".read", ".reading"].map((name) => form.querySelector(name));
    const canvases = form.querySelectorAll("canvas");

    function look(h = head.selectedIndex, at = row.value) {
      [head.selectedIndex, row.value] = [h, at];
      const i = Number(row.value), weights = maps[h][i], most = Math.max(...weights);
      row.nextSibling.textContent = i;
      read.textContent = `${NAMES[h]}: \u201c${words[i]}\u201d at ${i} reads `
        + `${best(weights).map(([j, weight]) => `${words[j]} at ${j} ${weight.toFixed(2)}`).join(", ")}.`;
      reading.innerHTML = words.map((word, j) =>
        `<span class="${j === i ? "from" : ""}" style="--weight: ${100 * (weights[j] || 0) / most}%">${word}</span>`).join(" ");
      form.style.setProperty("--row", `${100 * i / (row.max || 1)}%`);
      canvases.forEach((canvas, other) => canvas.classList.toggle("on", other === h));
    }

    function fault(typed) {
      const unknown = typed.find((word) => !known.includes(word));
      if (unknown) return `It has no word \u201c${unknown}\u201d: the buttons show all of its words.`;
      return typed.length && typed.length <= MOST ? "" : `Write 1 to ${MOST} words.`;
    }

    async function draw() {
      const typed = split(text.value), chosen = scheme.value;
      method.disabled = chosen !== "rotary";
      factor.disabled = method.disabled || method.value === "none";
      for (const input of [shift, factor]) input.nextSibling.textContent = input.value;
      said.textContent = fault(typed);
      said.nextSibling.hidden = said.textContent;
      text.setAttribute("aria-invalid", said.nextSibling.hidden);
      if (said.textContent) return;
      try {
        models[chosen] ||= await fetched(chosen);
      } catch (error) { said.textContent = `No weights: ${error.message}.`; }
      if (chosen !== scheme.value || !models[chosen]) return;
      const asked = typed.lastIndexOf(".") + 1, moved = Number(shift.value), tokens = typed.map((word) => known.indexOf(word));
      const answer = (by) => run(models[chosen].weight, tokens,
        tokens.map((_, i) => i + (only.checked && i < asked ? 0 : by)), chosen, method.value, Number(factor.value));
      form.found = answer(moved);
      [words, maps] = [typed, form.found.maps];
      const before = moved ? answer(0).maps : maps;
      const change = Math.max(...maps.flat().map((weights, i) => Math.max(...weights.map((w, j) => Math.abs(w - before.flat()[i][j])))));
      list.innerHTML = best(form.found.probabilities).map(([token, probability]) => `<li>${known[token]} <output>${probability.toFixed(3)}</output>`
        + `<span class="bar" style="width: ${100 * probability}%"></span></li>`).join("");
      said.textContent = `Next word: ${list.firstChild.textContent}. `
        + `Words: ${words.length}, ${words.length > TRAINED ? "more than" : "within"} the ${TRAINED} of training.`
        + (moved ? ` The largest change of an attention weight is ${change.toFixed(2)}.` : "");
      canvases.forEach((canvas, h) => {
        canvas.width = canvas.height = words.length;
        const pen = canvas.getContext("2d");
        pen.fillStyle = "#2b8fd0";
        maps[h].forEach((weights, i) => weights.forEach((weight, j) => {
          pen.globalAlpha = words.length > TRAINED ? Math.sqrt(weight) : weight; // or a long row would be too faint to see
          pen.fillRect(j, i, 1, 1);
        }));
      });
      form.style.setProperty("--size", `${100 / words.length}%`);
      const end = row.value === row.max;
      row.max = words.length - 1;
      look(head.selectedIndex, end ? row.max : row.value);
    }

    form.addEventListener("input", ({ target }) => ([head, row].includes(target) ? look() : draw()));
    form.addEventListener("click", ({ target }) => {
      if (target.type !== "button") return;
      const typed = split(text.value), word = target.textContent;
      text.value = (EDITS[word]?.(typed) || [...typed, word]).join(" ");
      draw();
    });
    reading.addEventListener("click", ({ target }) => look(head.selectedIndex, [...reading.children].indexOf(target)));
    canvases.forEach((canvas, h) => canvas.addEventListener("pointerdown", ({ offsetY }) =>
      look(h, Math.floor(offsetY / canvas.clientHeight * words.length))));
    [text.value, head.selectedIndex] = [STORY, MAPS - 1];
    text.focus();
    draw();
  }

  const folder = new URL("decoders/", document.currentScript.src).href;
  for (const box of document.querySelectorAll(".decoder")) {
    const form = document.createElement("form");
    form.className = "live";
    form.innerHTML = `${buttons(["Start"])}<p class="said" role="status">Start fetches 200 KB of weights.</p>`;
    form.firstChild.addEventListener("click", () => fetched("rotary").then((model) => build(form, model), (error) => {
      form.lastChild.textContent = `No weights: ${error.message}.`;
    }));
    box.append(form);
    box.classList.add("explorer", "is-live");
  }
})();
