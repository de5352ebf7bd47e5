// The question, dragged away from its story: what two heads of its question mark read, and the chance of the right word.
// The answers come from decoder-worker.js.
"use strict";

(() => {
  const { make, drag, slider, radios, still, address } = panel;
  const HEADS = 4, FAR = 120, READERS = [0, 6]; // layer 1, head 2 finds the fact
  const STORY = "the dog bites the man . the fox sees the king . the cat hears the bird . whom does the fox see ?";
  const WORDS = STORY.split(" "), FACTS = WORDS.lastIndexOf(".") + 1, MARK = WORDS.length - 1, WANTED = "king";
  const KINDS = {
    rotary: { name: "rotary", scheme: "rotary", factor: 1 },
    yarn2: { name: "YaRN, factor 2", scheme: "rotary", factor: 2 },
    yarn4: { name: "YaRN, factor 4", scheme: "rotary", factor: 4 },
    alibi: { name: "ALiBi", scheme: "ALiBi", factor: 1 },
    none: { name: "no positions", scheme: "none", factor: 1 },
  };

  const waiting = [];
  let worker;

  async function ask(question) { // which the worker answers in the order of asking
    if (location.protocol === "file:") throw Error("a page opened as a file may not fetch, so serve it: python -m http.server");
    worker ||= new Worker(address("_static/decoder-worker.js"));
    worker.onmessage ||= ({ data }) => {
      const [answer, fail] = waiting.shift();
      if (data.fault) fail(Error(data.fault)); else answer(data);
    };
    worker.onerror ||= () => waiting.splice(0).forEach(([, fail]) => fail(Error("the worker stopped")));
    worker.postMessage(question);
    return new Promise((...both) => waiting.push(both));
  }

  const best = (weights) => [...weights.entries()].sort((a, b) => b[1] - a[1]).slice(0, 3);
  const listed = (words) => words.map((word) => `\u201c${word}\u201d`).join(", ");
  const text = (x, y, words, anchor) => `<text x="${x}" y="${y}" text-anchor="${anchor}">${words}</text>`;
  Object.assign(panel, { ask, best, listed, STORY });

  async function question(live, given, controls, said, box) {
    if (navigator.connection?.saveData) throw Error("the reader saves data");
    await new Promise((near) => addEventListener("load", () => // after what the page itself needs
      new IntersectionObserver(([{ isIntersecting }]) => { if (isIntersecting) near(); }).observe(box)));
    const state = new URLSearchParams(location.search), kinds = Object.keys(KINDS);
    const courses = Object.fromEntries(kinds.map((kind) => [kind, []])), svg = make("svg.ruler", { "aria-hidden": "true" });
    const scheme = radios(controls, "scheme", kinds.map((kind) => KINDS[kind].name), move,
      Math.max(0, kinds.indexOf(state.get("scheme"))), kinds);
    const shift = slider(controls, "shift", "shift of the question", { min: 0, max: FAR, value: state.get("shift") ?? 0 }, move);
    const chosen = () => kinds[scheme()];
    let scale = 1, trace = () => {}, rest;

    async function answer(kind, s) {
      const { scheme, factor } = KINDS[kind], positions = WORDS.map((_, i) => (i < FACTS ? i : i + s));
      const { known, probabilities, maps } = await ask({ scheme, words: WORDS, positions, method: factor > 1 ? "YaRN" : "none", factor });
      const [[token, most]] = best(probabilities);
      courses[kind][s] = { says: known[token], most, king: probabilities[known.indexOf(WANTED)], rows: READERS.map((head) => maps[head][MARK]) };
    }

    async function course(kind) { // which draws itself, unless less motion is wanted
      for (let s = 0; s <= FAR; s += 1) {
        if (!courses[kind][s]) await answer(kind, s);
        if (!still || s === FAR) trace();
      }
    }

    async function show() {
      const [kind, s] = [chosen(), shift()];
      if (!courses[kind][s]) await answer(kind, s);
      if (kind === chosen() && s === shift()) draw();
    }

    function move() {
      show().catch(({ message }) => { said.textContent = `No weights: ${message}.`; });
    }

    function keep() {
      const here = new URL(location);
      here.searchParams.set("scheme", chosen());
      here.searchParams.set("shift", shift());
      history.replaceState(history.state, "", here);
    }

    function draw() {
      const kind = chosen(), s = shift(), now = courses[kind][s], wide = svg.clientWidth;
      if (!now || !wide) return;
      const [step, height] = wide < 560 ? [6, 100] : [wide < 800 ? 12 : 15, 130], from = FACTS * step, low = height + 190, plot = height + 100;
      scale = (wide - from - 24) / (FAR + MARK + 1 - FACTS);
      const x = (place) => 16 + (place < FACTS ? place * step : from + (place - FACTS) * scale), end = x(MARK + s);
      const place = (i) => (i < FACTS ? i : i + s), y = (chance) => low - (low - plot) * chance, pill = Math.max(0, end - 145);
      const read = now.rows[0].map((_, i) => Math.max(...now.rows.map((row) => row[i])));
      const arcs = now.rows.map((row, n) => row.map((weight, i) => {
        const to = x(place(i)), up = Math.min(2 * height - 20, 30 + 0.9 * (end - to)) * (n ? 1 : 0.75);
        const path = i === MARK ? `C ${end - 26} ${height - 44} ${end + 22} ${height - 44} ${end} ${height}`
          : `Q ${(end + to) / 2} ${height - up} ${to} ${height}`;
        return weight < 0.02 ? "" : `<path class="arc reader-${n}" d="M ${end} ${height} ${path}" style="stroke-width: ${1 + 7 * weight}"/>`;
      }).join("")).join("");
      const labels = WORDS.map((word, i) => (i < FACTS && (step > 6 || read[i] > 0.1) ? `<text class="${read[i] > 0.1 ? "read" : ""}" `
        + `transform="translate(${x(i) + 4} ${height + 12}) rotate(-60)" text-anchor="end">${step < 7 && word === "." ? `${WORDS[i - 1]} .` : word}</text>` : "")).join("");
      const ticks = (step > 6 ? [40, 60, 80, 100] : [60]).map((at) => text(x(at), height + 18, at, "middle")).join("");
      trace = () => {
        svg.querySelector("g").innerHTML = Object.entries(courses).map(([name, answers]) => {
          const points = [];
          for (let s = 0; answers[s]; s += 1) points.push(`${x(MARK + s).toFixed(1)} ${y(answers[s].king).toFixed(1)}`);
          return points.length ? `<path class="curve ${name} ${name === kind ? "now" : ""}" d="M ${points.join(" L ")}"/>` : "";
        }).join("");
      };
      svg.setAttribute("viewBox", `0 0 ${wide} ${low + 24}`);
      svg.innerHTML = `<path class="rule" d="M 0 ${height} H ${wide} M ${x(MARK)} ${plot} V ${low} H ${wide}"/>`
        + `<path class="cursor" d="M ${end} ${height} V ${low}"/>${arcs}${labels}${ticks}<g></g>`
        + text(wide, height + 18, "position 143", "end")
        + WORDS.map((_, i) => `<circle class="${i < FACTS ? "" : "asked"}" cx="${x(place(i))}" cy="${height}" r="${i === MARK ? 5 : 2.5}"/>`).join("")
        + `<g class="pill"><rect x="${pill}" y="${height + 58}" width="151" height="28" rx="14"/>`
        + `${text(pill + 75, height + 77, WORDS.slice(FACTS).join(" "), "middle")}</g>`
        + `<circle class="asked ${kind}" cx="${end}" cy="${y(now.king)}" r="5"/>`
        + text(x(MARK) - 8, plot + 9, `P(${WANTED}) = 1`, "end") + text(x(MARK) - 8, low, 0, "end")
        + text(x(MARK), low + 18, "shift 0", "start") + text(wide - 2, low + 18, FAR, "end");
      said.textContent = `The story begins ${MARK + s} tokens back. The model says ${now.says} ${now.most.toFixed(2)}`
        + `${now.says === WANTED ? "" : `, ${WANTED} ${now.king.toFixed(2)}`}. ${now.rows.map((row, n) => {
          const [[i, weight]] = best(row);
          return `${n ? "l" : "L"}ayer ${n}, head ${READERS[n] % HEADS} reads ${listed([WORDS[i]])} at ${place(i)}, ${weight.toFixed(2)}`;
        }).join("; ")}.`;
      live.found = now;
      trace();
    }

    await show(); // or its still picture stays
    live.append(controls, svg, said);
    new ResizeObserver(draw).observe(svg);
    live.addEventListener("change", keep);
    drag(svg, ({ clientX }) => {
      const start = clientX - scale * shift();
      return ({ clientX }) => shift.to(Math.round((clientX - start) / scale));
    }, keep);
    const first = course(chosen()), others = () => { // the other curves, once somebody plays
      rest ||= kinds.reduce((before, kind) => before.then(() => course(kind)), first).catch(() => {});
    };
    for (const event of ["pointerdown", "keydown", "input"]) live.addEventListener(event, others);
  }

  panel.place("Drag the question away from its story", question);
})();
