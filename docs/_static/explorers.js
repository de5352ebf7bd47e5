// The explorers of the book. Each takes the place of its static twin, and shows numbers that a test
// compares with the library's: every <output> carries the full value in `data-value`.
"use strict";

(() => {
  const SVG = "http://www.w3.org/2000/svg";

  function make(tag, attributes = {}, ...children) {
    const drawn = ["svg", "circle", "line", "path", "text", "g"].includes(tag);
    const element = drawn ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  // A labelled slider; `write` says how its value is read out.
  function slider(panel, name, text, { min, max, value, write = String }, changed) {
    const id = `explorer-${panel.dataset.name}-${name}`;
    const input = make("input", { type: "range", id, name, min, max, step: 1, value });
    const shown = make("output", { for: id });
    const tell = () => {
      shown.textContent = write(Number(input.value));
      input.setAttribute("aria-valuetext", shown.textContent);
    };
    input.addEventListener("input", () => { tell(); changed(); });
    tell();
    panel.append(make("div", { class: "control" }, make("label", { for: id }, text), input, shown));
    return () => Number(input.value);
  }

  function number(name) {
    const shown = make("output", { "data-name": name });
    shown.set = (value, digits = 4) => {
      shown.dataset.value = value;
      const text = value.toFixed(digits);
      shown.textContent = Number(text) === 0 ? (0).toFixed(digits) : text.replace("-", "\u2212");
    };
    return shown;
  }

  function dial(className, radius = 40) {
    const svg = make("svg", { viewBox: "-50 -50 100 100", class: `dial ${className}`, "aria-hidden": "true" },
      make("circle", { r: radius, class: "rim" }));
    svg.hand = (name, length = radius) => {
      const line = make("line", { class: `hand ${name}`, x1: 0, y1: 0 });
      const tip = make("circle", { class: `tip ${name}`, r: 4 });
      svg.append(line, tip);
      return (x, y) => { // y points up, as on paper
        for (const [element, a, b] of [[line, "x2", "y2"], [tip, "cx", "cy"]]) {
          element.setAttribute(a, (length * x).toFixed(2));
          element.setAttribute(b, (-length * y).toFixed(2));
        }
      };
    };
    return svg;
  }

  const frequency = (pair, width, base) => base ** (-2 * pair / width);

  // --- Sinusoidal encoding: one dial for each clock, beside the binary counter.
  function clocks(panel) {
    const WIDTH = 8, BITS = 6, BASES = [10, 100, 1000, 10000];
    const controls = make("div", { class: "controls" });
    controls.dataset.name = "clocks";
    const bits = make("div", { class: "bits" });
    const dials = make("div", { class: "dials" });
    const cells = Array.from({ length: BITS }, () => make("span", { class: "bit" }));
    bits.append(...cells);
    const faces = Array.from({ length: WIDTH / 2 }, (_, j) => {
      const svg = dial("position");
      const sin = number(`sin-${j}`), cos = number(`cos-${j}`);
      const turn = make("span", { class: "turn" });
      dials.append(make("figure", {}, svg, make("figcaption", {},
        make("strong", {}, `clock ${j}`), turn, make("span", {}, "sin ", sin), make("span", {}, "cos ", cos))));
      return { move: svg.hand("position"), sin, cos, turn };
    });
    const said = make("p", { class: "said", role: "status" });

    function draw() {
      const i = position(), base = BASES[choice()];
      faces.forEach(({ move, sin, cos, turn }, j) => {
        const angle = i * frequency(j, WIDTH, base);
        sin.set(Math.sin(angle));
        cos.set(Math.cos(angle));
        move(Math.sin(angle), Math.cos(angle));
        turn.textContent = `a turn in ${(2 * Math.PI / frequency(j, WIDTH, base)).toFixed(1)}`;
      });
      const binary = i.toString(2).padStart(BITS, "0");
      cells.forEach((cell, k) => {
        cell.textContent = binary[k];
        cell.classList.toggle("on", binary[k] === "1");
      });
      said.textContent = `Position ${i} is ${binary} in binary. `
        + `The fastest clock has turned ${(i / (2 * Math.PI)).toFixed(2)} times.`;
    }
    const position = slider(controls, "position", "position", { min: 0, max: 63, value: 5 }, draw);
    const choice = slider(controls, "base", "base", { min: 0, max: BASES.length - 1, value: BASES.length - 1,
      write: (k) => String(BASES[k]) }, draw);
    panel.append(controls,
      make("div", { class: "row" }, make("p", { class: "name" }, "binary number", make("small", {}, "slow \u2190 fast")), bits),
      make("div", { class: "row" }, make("p", { class: "name" }, "encoding", make("small", {}, "fast \u2192 slow")), dials),
      said);
    draw();
  }

  // --- Rotary: the score of a query and a key when both move by the same shift.
  function rotary(panel) {
    const Q = [1, 0, 0.5, 0.5], K = [0.8, 0.6, 0.6, -0.2], WIDTH = 4, BASE = 10000, SHIFTS = 64;
    const turned = (x, p) => {
      const y = [];
      for (let j = 0; j < WIDTH / 2; j += 1) {
        const angle = p * frequency(j, WIDTH, BASE), [a, b] = [x[2 * j], x[2 * j + 1]];
        y.push(a * Math.cos(angle) - b * Math.sin(angle), a * Math.sin(angle) + b * Math.cos(angle));
      }
      return y;
    };
    const added = (x, p) => x.map((value, c) => {
      const angle = p * frequency(c >> 1, WIDTH, BASE);
      return value + (c % 2 ? Math.cos(angle) : Math.sin(angle));
    });
    const score = (encode, i, j) => {
      const [q, k] = [encode(Q, i), encode(K, j)];
      return q.reduce((sum, value, c) => sum + value * k[c], 0) / Math.sqrt(WIDTH);
    };

    const controls = make("div", { class: "controls" });
    controls.dataset.name = "rotary";
    const faces = [0, 1].map((j) => {
      const svg = dial("", 44);
      const arc = make("path", { class: "between" });
      svg.append(arc);
      const angle = number(`angle-${j}`);
      const caption = make("figcaption", {}, make("strong", {}, `pair ${j}`), make("span", {}, "angle ", angle, "\u00b0"));
      return { j, arc, angle, query: svg.hand("query"), key: svg.hand("key"), box: make("figure", {}, svg, caption) };
    });
    const [LEFT, HEIGHT, UNIT] = [4, 96, 24];
    const plot = make("svg", { viewBox: `0 0 ${LEFT + 4 * SHIFTS} ${HEIGHT}`, class: "plot", "aria-hidden": "true" });
    const lines = ["additive", "rotary"].map((name) => make("path", { class: `curve ${name}` }));
    const marker = make("line", { class: "now", y1: 0, y2: HEIGHT });
    plot.append(marker, ...lines);
    const results = { rotary: number("rotary"), additive: number("additive") };
    const said = make("p", { class: "said", role: "status" });
    const x = (shift) => LEFT + 4 * shift, y = (value) => HEIGHT / 2 - UNIT * (value - 0.5);

    function draw() {
      const s = shift(), offset = distance(), [i, j] = [s + 8, s + 8 - offset];
      const [q, k] = [turned(Q, i), turned(K, j)];
      for (const face of faces) {
        const c = 2 * face.j;
        const [lq, lk] = [Math.hypot(q[c], q[c + 1]), Math.hypot(k[c], k[c + 1])];
        face.query(q[c] / lq, q[c + 1] / lq);
        face.key(0.8 * k[c] / lk, 0.8 * k[c + 1] / lk);
        const from = Math.atan2(k[c + 1], k[c]);
        let between = Math.atan2(q[c + 1], q[c]) - from;
        between -= 2 * Math.PI * Math.round(between / (2 * Math.PI));
        face.angle.set(between * 180 / Math.PI, 1);
        const at = (angle) => `${(20 * Math.cos(angle)).toFixed(2)} ${(-20 * Math.sin(angle)).toFixed(2)}`;
        face.arc.setAttribute("d", `M ${at(from)} A 20 20 0 0 ${between > 0 ? 0 : 1} ${at(from + between)}`);
      }
      results.rotary.set(score(turned, i, j));
      results.additive.set(score(added, i, j));
      [added, turned].forEach((encode, n) => {
        const points = Array.from({ length: SHIFTS }, (_, t) =>
          `${x(t).toFixed(1)} ${y(score(encode, t + 8, t + 8 - offset)).toFixed(1)}`);
        lines[n].setAttribute("d", `M ${points.join(" L ")}`);
      });
      marker.setAttribute("x1", x(s));
      marker.setAttribute("x2", x(s));
      said.textContent = `Query at ${i}, key at ${j}: rotary score ${results.rotary.textContent}, `
        + `additive score ${results.additive.textContent}.`;
    }
    const distance = slider(controls, "offset", "query minus key", { min: -8, max: 8, value: 3,
      write: (value) => String(value).replace("-", "\u2212") }, draw);
    const shift = slider(controls, "shift", "shift of both", { min: 0, max: SHIFTS - 1, value: 0 }, draw);
    panel.append(controls,
      make("div", { class: "row" }, make("p", { class: "name" },
        make("span", { class: "key-to query" }, "query"), make("span", { class: "key-to key" }, "key")),
        make("div", { class: "dials" }, ...faces.map((face) => face.box))),
      make("div", { class: "row" }, make("p", { class: "name" }, "score over the shift",
        make("span", { class: "key-to rotary" }, "rotary ", results.rotary),
        make("span", { class: "key-to additive" }, "additive ", results.additive)), plot),
      said);
    draw();
  }

  // Built when they come near: a phone that opens the page has enough to do.
  const builders = { clocks, rotary };
  const near = new IntersectionObserver((entries) => {
    for (const { target: box } of entries.filter((entry) => entry.isIntersecting)) {
      near.unobserve(box);
      const name = Object.keys(builders).find((name) => box.classList.contains(`explorer-${name}`));
      const panel = make("div", { class: "live", role: "group", "aria-label": `explorer: ${name}` });
      builders[name](panel);
      box.append(panel);
      box.classList.add("is-live");
    }
  }, { rootMargin: "100%" });
  document.querySelectorAll(".explorer").forEach((box) => near.observe(box));
})();
