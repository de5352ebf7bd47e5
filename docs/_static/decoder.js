// "Ask it yourself": a panel that runs the trained decoders when the reader presses Start, and a question that can be
// dragged away from its story. What they show comes from decoder-worker.js.
"use strict";

(() => {
  const HEADS = 4, MAPS = 8, TRAINED = 48, MOST = 256, FIND = 6; // layer 1, head 2 finds the fact
  const NOUNS = "dog man fox king cat bird boy wolf".split(" "), VERBS = "bites sees hears likes".split(" ");
  const STORY = "the dog bites the man . the fox sees the king . the cat hears the bird . whom does the fox see ?";

  const here = document.currentScript.src, waiting = [];
  let worker;

  async function ask(question) { // which the worker answers in the order of asking
    if (here.startsWith("file:")) throw Error("a page that is opened as a file may not fetch, so serve it: python -m http.server");
    worker ||= new Worker(new URL("decoder-worker.js", here));
    worker.onmessage ||= ({ data }) => {
      const [answer, fail] = waiting.shift();
      if (data.fault) fail(Error(data.fault)); else answer(data);
    };
    worker.onerror ||= () => waiting.splice(0).forEach(([, fail]) => fail(Error("the worker stopped")));
    worker.postMessage(question);
    return new Promise((...both) => waiting.push(both));
  }

  // --- The panel.
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
  const listed = (words) => words.map((word) => `\u201c${word}\u201d`).join(", ");

  function longer(words) {
    const asked = words.lastIndexOf(".") + 1, more = FACTS.filter((fact) => !words.join(" ").includes(fact));
    return [...words.slice(0, asked), ...more.slice(0, 4), ...words.slice(asked)];
  }

  // What a button makes of the words before the cursor and after it; a new text is edited before its question mark.
  const asking = (words) => (words.at(-1) === "?" ? [words.slice(0, -1), ["?"]] : [words, []]);
  const EDITS = {
    "take a word back": (before, after) => [before.slice(0, -1), after],
    "add four facts": (before, after) => asking(longer([...before, ...after])),
    "first story": () => asking(split(STORY)),
  };
  const NAMES = Array.from({ length: MAPS }, (_, h) => `layer ${Math.floor(h / HEADS)}, head ${h % HEADS}`);

  function paint(canvas, map) {
    const pen = canvas.getContext("2d"), n = canvas.width = canvas.height = map.length, image = pen.createImageData(n, n);
    const pixels = new Uint32Array(image.data.buffer); // blue, as opaque as the weight; a long row would be too faint to see
    map.forEach((weights, i) => weights.forEach((weight, j) => {
      pixels[i * n + j] = 0xd08f2b + (Math.round(255 * (n > TRAINED ? Math.sqrt(weight) : weight)) << 24);
    }));
    pen.putImageData(image, 0, 0);
  }

  function build(form, { known }) {
    let words, maps, busy = false, again = false;
    form.innerHTML = control("story and question", '<textarea name="text" rows="4" spellcheck="false"></textarea>')
      + buttons(known) + buttons(Object.keys(EDITS)) + '<div class="controls">'
      + select("scheme", "scheme", ["rotary", "ALiBi", "none"]) + slider("shift of positions", "shift", 0, 200)
      + control("shift only the question", '<input type="checkbox" name="only">')
      + select("extension", "method", ["none", "interpolation", "YaRN"]) + slider("factor", "factor", 1, 8)
      + '</div><p class="said" role="status"></p><div class="answer"><ol></ol><div class="maps">'
      + NAMES.map((name) => `<figure><figcaption>${name}</figcaption><canvas></canvas></figure>`).join("") + '</div><div class="controls">'
      + select("head to read", "head", NAMES) + slider("query to read", "row", 0, 0) + '</div><p class="read"></p><p class="reading"></p>'
      + '<div class="map" aria-hidden="true"><div class="across"></div><div class="down"></div><canvas></canvas></div></div>';
    const { text, scheme, shift, only, method, factor, head, row } = form.elements;
    const [said, answer, list, read, reading, across, down] = ["said", "answer", "answer ol", "read", "reading", "across", "down"]
      .map((name) => form.querySelector(`.${name}`));
    const canvases = [...form.querySelectorAll(".maps canvas")], large = form.querySelector(".map canvas");

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
      paint(large, maps[h]);
      const step = Math.ceil(words.length * 10 / large.clientWidth); // as many words as there is room for
      across.innerHTML = down.innerHTML = words.map((word, j) => (j % step ? "" :
        `<span class="${j === i ? "from" : ""}" style="--at: ${100 * (j + 0.5) / words.length}%">${word}</span>`)).join("");
    }

    function fault(typed) {
      const unknown = [...new Set(typed.filter((word) => !known.includes(word)))];
      if (unknown.length) return `It does not know ${listed(unknown)}: the buttons show all of its words.`;
      if (typed.some((word, i) => /\W/.test(word) && /\W/.test(typed[i - 1] || "."))) return "Write a word before each mark.";
      return typed.length && typed.length <= MOST ? "" : `Write 1 to ${MOST} words.`;
    }

    async function draw() { // one answer after the other, and what was missed meanwhile once
      again = busy;
      if (busy) return;
      do {
        [busy, again] = [true, false];
        await once();
        busy = false;
      } while (again);
    }

    async function once() {
      const typed = split(text.value), chosen = scheme.value;
      method.disabled = chosen !== "rotary";
      factor.disabled = method.disabled || method.value === "none";
      for (const input of [shift, factor]) input.nextSibling.textContent = input.value;
      const wrong = fault(typed), asked = typed.lastIndexOf(".") + 1, moved = Number(shift.value);
      answer.classList.toggle("old", wrong);
      text.setAttribute("aria-invalid", Boolean(wrong));
      if (wrong) { said.textContent = wrong; return; }
      const places = (by) => typed.map((_, i) => i + (only.checked && i < asked ? 0 : by)), positions = places(moved);
      const answered = (positions) => ask({ scheme: chosen, words: typed, positions, method: method.value, factor: Number(factor.value) });
      let found, before;
      try {
        [found, before] = await Promise.all([answered(positions), moved && answered(places(0))]);
      } catch (error) {
        said.textContent = `No weights: ${error.message}.`;
        return;
      }
      [words, maps] = [typed, found.maps];
      const change = before && Math.max(...maps.map((map, h) => Math.max(...map.map((weights, i) =>
        Math.max(...weights.map((weight, j) => Math.abs(weight - before.maps[h][i][j])))))));
      list.innerHTML = best(found.probabilities).map(([token, probability]) => `<li>${known[token]} <output>${probability.toFixed(3)}</output>`
        + `<span class="bar" style="width: ${100 * probability}%"></span></li>`).join("");
      said.textContent = `Next word: ${list.firstChild.textContent}. ${words.length} word${words.length > 1 ? "s" : ""}, up to ${positions.at(-1) - positions[0]} apart; `
        + `training had up to ${TRAINED} words, up to ${TRAINED - 1} apart.`
        + (moved ? ` The largest change of an attention weight is ${change.toFixed(2)}.` : "");
      canvases.forEach((canvas, h) => paint(canvas, maps[h]));
      form.style.setProperty("--size", `${100 / words.length}%`);
      const end = row.value === row.max;
      row.max = words.length - 1;
      look(head.selectedIndex, end ? row.max : row.value);
      form.found = found;
    }

    function write([before, after]) {
      text.value = [...before, ...after].join(" ");
      const cursor = before.join(" ").length;
      text.setSelectionRange(cursor, cursor);
      draw();
    }

    form.addEventListener("input", ({ target }) => ([head, row].includes(target) ? look() : draw()));
    form.addEventListener("click", ({ target }) => {
      if (target.type !== "button") return;
      const [before, after] = [text.value.slice(0, text.selectionStart), text.value.slice(text.selectionEnd)];
      const rest = /[a-z]$/i.test(before) ? after.match(/^[a-z]*/i)[0] : ""; // of a word that the cursor stands in
      const [left, right] = [split(before + rest), split(after.slice(rest.length))];
      write(EDITS[target.textContent]?.(left, right) || [[...left, target.textContent], right]);
    });
    reading.addEventListener("click", ({ target }) => look(head.selectedIndex, [...reading.children].indexOf(target)));
    for (const canvas of [...canvases, large]) canvas.addEventListener("pointerdown", ({ offsetY }) =>
      look(canvas === large ? head.selectedIndex : canvases.indexOf(canvas), Math.floor(offsetY / canvas.clientHeight * words.length)));
    head.selectedIndex = FIND;
    write(EDITS["first story"]());
    const pointer = matchMedia("(pointer: fine)").matches; // else a keyboard would come up
    (pointer ? text : scheme).focus({ preventScroll: true });
  }

  // --- The question, dragged away from its facts: what two heads read, and the chance of the right word.
  const FAR = 120, READERS = [0, FIND];
  const KINDS = {
    rotary: { name: "rotary", scheme: "rotary", factor: 1 },
    yarn2: { name: "YaRN, factor 2", scheme: "rotary", factor: 2 },
    yarn4: { name: "YaRN, factor 4", scheme: "rotary", factor: 4 },
    alibi: { name: "ALiBi", scheme: "ALiBi", factor: 1 },
    none: { name: "no positions", scheme: "none", factor: 1 },
  };

  async function pull(box) {
    const words = split(STORY), facts = words.lastIndexOf(".") + 1, mark = words.length - 1, wanted = "king";
    const state = new URLSearchParams(location.search), courses = Object.fromEntries(Object.keys(KINDS).map((kind) => [kind, []]));
    const form = document.createElement("form");
    form.className = "live";
    form.innerHTML = '<div class="choice" role="radiogroup" aria-label="scheme">' + Object.entries(KINDS).map(([kind, { name }]) =>
      `<label class="key-to ${kind}"><input type="radio" name="scheme" value="${kind}">${name}</label>`).join("")
      + `</div>${slider("shift of the question", "shift", 0, FAR)}<svg class="ruler" aria-hidden="true"></svg><p class="said" role="status"></p>`;
    const { scheme, shift } = form.elements, svg = form.querySelector("svg"), said = form.querySelector(".said");
    shift.value = state.get("shift") ?? 0;
    scheme.value = state.get("scheme") in KINDS ? state.get("scheme") : "rotary";
    let scale = 1, trace = () => {}, rest;

    async function answer(kind, s) {
      const { scheme, factor } = KINDS[kind], positions = words.map((_, i) => (i < facts ? i : i + s));
      const { known, probabilities, maps } = await ask({ scheme, words, positions, method: factor > 1 ? "YaRN" : "none", factor });
      const [[token, most]] = best(probabilities);
      courses[kind][s] = { says: known[token], most, king: probabilities[known.indexOf(wanted)], rows: READERS.map((head) => maps[head][mark]) };
    }

    async function course(kind) { // which draws itself, unless less motion is wanted
      const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
      for (let s = 0; s <= FAR; s += 1) {
        if (!courses[kind][s]) await answer(kind, s);
        if (!still || s === FAR) trace();
      }
    }

    async function show() {
      const [kind, s] = [scheme.value, Number(shift.value)];
      shift.nextSibling.textContent = s;
      if (!courses[kind][s]) await answer(kind, s);
      if (kind === scheme.value && s === Number(shift.value)) draw();
    }

    function draw() {
      const kind = scheme.value, s = Number(shift.value), now = courses[kind][s], wide = svg.clientWidth;
      if (!now || !wide) return;
      const [step, height] = wide < 560 ? [6, 100] : [12, 130], from = facts * step, low = height + 190, plot = height + 100;
      scale = (wide - from - 24) / (FAR + mark + 1 - facts);
      const x = (place) => 16 + (place < facts ? place * step : from + (place - facts) * scale), end = x(mark + s);
      const place = (i) => (i < facts ? i : i + s), y = (chance) => low - (low - plot) * chance, pill = Math.max(0, end - 145);
      const read = now.rows[0].map((_, i) => Math.max(...now.rows.map((row) => row[i])));
      const arcs = now.rows.map((row, n) => row.map((weight, i) => {
        const to = x(place(i)), up = Math.min(2 * height - 20, 30 + 0.9 * (end - to)) * (n ? 1 : 0.75);
        const path = i === mark ? `C ${end - 26} ${height - 44} ${end + 22} ${height - 44} ${end} ${height}`
          : `Q ${(end + to) / 2} ${height - up} ${to} ${height}`;
        return weight < 0.02 ? "" : `<path class="arc reader-${n}" d="M ${end} ${height} ${path}" style="stroke-width: ${1 + 7 * weight}"/>`;
      }).join("")).join("");
      const labels = words.map((word, i) => (i < facts && (step > 6 || read[i] > 0.1) ? `<text class="${read[i] > 0.1 ? "read" : ""}" `
        + `transform="translate(${x(i) + 4} ${height + 12}) rotate(-60)" text-anchor="end">${step < 7 && word === "." ? `${words[i - 1]} .` : word}</text>` : "")).join("");
      const ticks = (step > 6 ? [40, 60, 80, 100] : [60]).map((at) => `<text x="${x(at)}" y="${height + 18}" text-anchor="middle">${at}</text>`).join("");
      trace = () => {
        svg.querySelector("g").innerHTML = Object.entries(courses).map(([name, answers]) => {
          const points = [];
          for (let s = 0; answers[s]; s += 1) points.push(`${x(mark + s).toFixed(1)} ${y(answers[s].king).toFixed(1)}`);
          return points.length ? `<path class="curve ${name} ${name === kind ? "now" : ""}" d="M ${points.join(" L ")}"/>` : "";
        }).join("");
      };
      svg.setAttribute("viewBox", `0 0 ${wide} ${low + 24}`);
      svg.innerHTML = `<path class="rule" d="M 0 ${height} H ${wide} M ${x(mark)} ${plot} V ${low} H ${wide}"/>`
        + `<path class="cursor" d="M ${end} ${height} V ${low}"/>${arcs}${labels}${ticks}<g></g>`
        + `<text x="${wide}" y="${height + 18}" text-anchor="end">position 143</text>`
        + words.map((_, i) => `<circle class="${i < facts ? "" : "asked"}" cx="${x(place(i))}" cy="${height}" r="${i === mark ? 5 : 2.5}"/>`).join("")
        + `<g class="pill"><rect x="${pill}" y="${height + 58}" width="151" height="28" rx="14"/>`
        + `<text x="${pill + 75}" y="${height + 77}" text-anchor="middle">${words.slice(facts).join(" ")}</text></g>`
        + `<circle class="asked ${kind}" cx="${end}" cy="${y(now.king)}" r="5"/>`
        + `<text x="${x(mark) - 8}" y="${plot + 9}" text-anchor="end">P(${wanted}) = 1</text><text x="${x(mark) - 8}" y="${low}" text-anchor="end">0</text>`
        + `<text x="${x(mark)}" y="${low + 18}">shift 0</text><text x="${wide - 2}" y="${low + 18}" text-anchor="end">${FAR}</text>`;
      const told = `The story begins ${mark + s} tokens back. The model says ${now.says} ${now.most.toFixed(2)}`
        + `${now.says === wanted ? "" : `, ${wanted} ${now.king.toFixed(2)}`}. ${now.rows.map((row, n) => {
          const [[i, weight]] = best(row);
          return `${n ? "l" : "L"}ayer ${n}, head ${READERS[n] % HEADS} reads ${listed([words[i]])} at ${place(i)}, ${weight.toFixed(2)}`;
        }).join("; ")}.`;
      said.textContent = told;
      form.found = now;
      trace();
    }

    await show(); // or its still picture stays
    box.append(form);
    box.classList.add("explorer", "is-live");
    new ResizeObserver(draw).observe(svg);
    const keep = () => {
      const address = new URL(location);
      address.searchParams.set("scheme", scheme.value);
      address.searchParams.set("shift", shift.value);
      history.replaceState(history.state, "", address);
    };
    const move = () => show().catch(({ message }) => { said.textContent = `No weights: ${message}.`; });
    form.addEventListener("input", move);
    form.addEventListener("change", keep);
    let drag = null;
    svg.addEventListener("pointerdown", ({ pointerId, clientX }) => {
      svg.setPointerCapture(pointerId);
      drag = [clientX, Number(shift.value)];
    });
    svg.addEventListener("pointermove", ({ clientX }) => {
      if (!drag) return;
      shift.value = drag[1] + Math.round((clientX - drag[0]) / scale);
      move();
    });
    svg.addEventListener("lostpointercapture", () => { drag = null; keep(); });
    const first = course(scheme.value), others = () => { // the other curves, once somebody plays
      rest ||= Object.keys(KINDS).reduce((before, kind) => before.then(() => course(kind)), first).catch(() => {});
    };
    for (const event of ["pointerdown", "keydown", "input"]) form.addEventListener(event, others);
  }

  const near = new IntersectionObserver((entries) => {
    for (const { target: box } of entries.filter((entry) => entry.isIntersecting)) {
      near.unobserve(box);
      pull(box).catch(() => {}); // without weights the still picture stays
    }
  });
  addEventListener("load", () => { // after what the page itself needs
    if (!navigator.connection?.saveData) document.querySelectorAll(".decoder-question").forEach((box) => near.observe(box));
  });

  const plain = { scheme: "rotary", words: split(STORY), positions: split(STORY).map((_, i) => i), method: "none", factor: 1 };
  for (const box of document.querySelectorAll(".decoder")) {
    const form = document.createElement("form");
    form.className = "live";
    form.innerHTML = `${buttons(["Start"])}<p class="said" role="status">Start fetches 200 KB of weights.</p>`;
    form.firstChild.addEventListener("click", () => ask(plain).then((answer) => build(form, answer), (error) => {
      form.lastChild.textContent = `No weights: ${error.message}.`;
    }));
    box.append(form);
    box.classList.add("explorer", "is-live");
  }
})();
