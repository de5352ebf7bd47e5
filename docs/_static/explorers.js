// The explorers of rotating pairs and of biases.
"use strict";

(() => {
  const { make, slider, number } = panel;

  // A choice of few, which are all in sight.
  function radios(panel, name, texts, changed) {
    const inputs = texts.map((text, k) => make("input", { type: "radio", name, value: k, ...(k ? {} : { checked: "" }) }));
    for (const input of inputs) input.addEventListener("input", changed);
    panel.append(make("div", { class: "choice", role: "radiogroup", "aria-label": name },
      ...inputs.map((input, k) => make("label", {}, input, texts[k]))));
    return () => inputs.findIndex((input) => input.checked);
  }

  // A plot between the values of its axes, which `set` writes: those of the left one from below, then of the lower one.
  function axes(plot) {
    const ends = ["low", "high", "first", "last"].map((name) => make("span", { class: name, "aria-hidden": "true" }));
    const box = make("div", { class: "axes" }, plot, ...ends);
    box.set = (...values) => ends.forEach((end, k) => (end.textContent = String(values[k]).replace("-", "\u2212")));
    return box;
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

  // --- Sinusoidal encoding: one dial for each pair, beside the binary counter.
  function pairs(panel) {
    const WIDTH = 8, BITS = 6, BASES = [10, 100, 1000, 10000];
    const controls = make("div", { class: "controls" });
    controls.dataset.name = "pairs";
    const bits = make("div", { class: "bits" });
    const dials = make("div", { class: "dials" });
    const cells = Array.from({ length: BITS }, () => make("span", { class: "bit" }));
    bits.append(...cells);
    const faces = Array.from({ length: WIDTH / 2 }, (_, j) => {
      const svg = dial("position");
      const sin = number(`sin-${j}`), cos = number(`cos-${j}`);
      const period = make("span");
      dials.append(make("figure", {}, svg, make("figcaption", {},
        make("strong", {}, `pair ${j}`), period, make("span", {}, "sin ", sin), make("span", {}, "cos ", cos))));
      return { move: svg.hand("position"), sin, cos, period };
    });
    const said = make("p", { class: "said", role: "status" });

    function draw() {
      const i = position(), base = BASES[choice()];
      faces.forEach(({ move, sin, cos, period }, j) => {
        const angle = i * frequency(j, WIDTH, base);
        sin.set(Math.sin(angle));
        cos.set(Math.cos(angle));
        move(Math.sin(angle), Math.cos(angle));
        period.textContent = `a circle in ${(2 * Math.PI / frequency(j, WIDTH, base)).toFixed(1)}`;
      });
      const binary = i.toString(2).padStart(BITS, "0");
      cells.forEach((cell, k) => {
        cell.textContent = binary[k];
        cell.classList.toggle("on", binary[k] === "1");
      });
      said.textContent = `Position ${i} is ${binary} in binary. `
        + `Pair 0 has completed ${(i / (2 * Math.PI)).toFixed(2)} circles.`;
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
    const rotated = (x, p) => {
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
    const [LEFT, HEIGHT, UNIT, LOW, HIGH] = [4, 96, 24, -1, 3]; // no score is below -0.40 or above 2.91
    const plot = make("svg", { viewBox: `0 0 ${LEFT + 4 * SHIFTS} ${HEIGHT}`, class: "plot", "aria-hidden": "true" });
    const lines = ["additive", "rotary"].map((name) => make("path", { class: `curve ${name}` }));
    const marker = make("line", { class: "now", y1: 0, y2: HEIGHT });
    plot.append(marker, ...lines);
    const framed = axes(plot);
    framed.set(LOW, HIGH, 0, SHIFTS - 1);
    const results = { rotary: number("rotary"), additive: number("additive") };
    const said = make("p", { class: "said", role: "status" });
    const x = (shift) => LEFT + 4 * shift, y = (value) => UNIT * (HIGH - value);

    function draw() {
      const s = shift(), offset = distance(), [i, j] = [s + 8, s + 8 - offset];
      const [q, k] = [rotated(Q, i), rotated(K, j)];
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
      results.rotary.set(score(rotated, i, j));
      results.additive.set(score(added, i, j));
      [added, rotated].forEach((encode, n) => {
        const points = Array.from({ length: SHIFTS }, (_, t) =>
          `${x(t).toFixed(1)} ${y(score(encode, t + 8, t + 8 - offset)).toFixed(1)}`);
        lines[n].setAttribute("d", `M ${points.join(" L ")}`);
      });
      marker.setAttribute("x1", x(s));
      marker.setAttribute("x2", x(s));
      said.textContent = `Query at ${i}, key at ${j}: rotary score ${results.rotary.textContent}, `
        + `additive score ${results.additive.textContent}.`;
    }
    const distance = slider(controls, "offset", "query ahead of key by", { min: -8, max: 8, value: 3,
      write: (value) => String(value).replace("-", "\u2212") }, draw);
    const shift = slider(controls, "shift", "shift of both", { min: 0, max: SHIFTS - 1, value: 0 }, draw);
    panel.append(controls,
      make("div", { class: "row" }, make("p", { class: "name" },
        make("span", { class: "key-to query" }, "query"), make("span", { class: "key-to key" }, "key")),
        make("div", { class: "dials" }, ...faces.map((face) => face.box))),
      make("div", { class: "row" }, make("p", { class: "name" }, "score over the shift",
        make("span", { class: "key-to rotary" }, "rotary ", results.rotary),
        make("span", { class: "key-to additive" }, "additive ", results.additive)), framed),
      said);
    draw();
  }

  // --- Biases on the scores: what a scheme adds over the distance, and the attention that it makes.
  function biases(panel) {
    const KEYS = 128, HEADS = 8, [LEFT, HEIGHT] = [4, 80];
    const LEAST = [2, 4, 8, 16, 32, 64, 128], MOST = [0.02, 0.05, 0.1, 0.2, 0.5, 1]; // where an axis may end
    const bucket = (a) => (a < 16 ? a : Math.min(31, 16 + Math.floor(16 * Math.log(a / 16) / Math.log(8))));
    const product = (a) => Array.from({ length: 64 }, (_, c) => Math.cos(a * frequency(c, 128, 10000)))
      .reduce((sum, wave) => sum + wave, 0);
    const schemes = [
      { name: "ALiBi", tell: (s) => `slope 1/${2 ** s}`, bias: (a, s) => -(2 ** -s) * a },
      { name: "T5", tell: (s) => `${(s / 8).toFixed(2)} a bucket`, bias: (a, s) => -s / 8 * bucket(a) },
      { name: "KERPLE", tell: (s) => `r\u2081 = ${(s / 2).toFixed(1)}`, bias: (a, s) => -s / 2 * Math.log1p(a) },
      { name: "FIRE", tell: (s) => `f(x) = \u2212${s}x`,
        bias: (a, s) => -s * Math.log1p(0.1 * a) / (Math.log1p(0.1 * (KEYS - 1)) + 1e-6) },
      { name: "Sandwich", tell: (s) => `head ${s} of ${HEADS}`,
        bias: (a, s) => HEADS / (8 * s) * (product(a) - product(0)) },
    ];
    const controls = make("div", { class: "controls" });
    controls.dataset.name = "biases";
    const results = { bias: number("bias"), weight: number("weight"), half: number("half") };
    const plots = ["bias", "weight"].map((name) => {
      const svg = make("svg", { viewBox: `0 0 ${2 * LEFT + 2 * KEYS} ${HEIGHT}`, class: "plot", "aria-hidden": "true" });
      const marker = make("line", { class: "now", y1: 0, y2: HEIGHT });
      const line = make("path", { class: `curve ${name}` });
      svg.append(marker, line);
      const box = axes(svg);
      return { box, draw(values, at, low, high) {
        box.set(low, high, 0, KEYS - 1);
        line.setAttribute("d", `M ${values.map((y, a) => `${LEFT + 2 * a} ${(HEIGHT - 2 - (HEIGHT - 6) * (y - low) / (high - low)).toFixed(1)}`).join(" L ")}`);
        for (const end of ["x1", "x2"]) marker.setAttribute(end, LEFT + 2 * at);
      } };
    });
    const said = make("p", { class: "said", role: "status" });

    function draw() {
      const scheme = schemes[choice()], s = setting(), at = distance();
      const added = Array.from({ length: KEYS }, (_, a) => scheme.bias(a, s));
      const powers = added.map(Math.exp), total = powers.reduce((sum, power) => sum + power, 0);
      let half = 0;
      for (let sum = 0; sum < total / 2; half += 1) sum += powers[half];
      results.bias.set(added[at], 2);
      results.weight.set(powers[at] / total);
      results.half.set(half, 0);
      const most = Math.max(...powers) / total;
      plots[0].draw(added, at, -LEAST.find((end) => end > -Math.min(...added)), 0);
      plots[1].draw(powers.map((power) => power / total), at, 0, MOST.find((end) => end > most));
      said.textContent = `${scheme.name}, ${scheme.tell(s)}: a key ${at} back gets ${results.bias.textContent} added `
        + `and ${results.weight.textContent} of the weight.`;
    }
    const choice = radios(controls, "scheme", schemes.map((scheme) => scheme.name),
      () => controls.querySelector("[name=setting]").dispatchEvent(new Event("input")));
    const setting = slider(controls, "setting", "setting", { min: 1, max: HEADS, value: 4,
      write: (s) => schemes[choice()].tell(s) }, draw);
    const distance = slider(controls, "distance", "distance", { min: 0, max: KEYS - 1, value: 10 }, draw);
    panel.append(controls,
      make("div", { class: "row" }, make("p", { class: "name" }, make("span", {}, "bias ", results.bias),
        make("small", {}, "over the distance")), plots[0].box),
      make("div", { class: "row" }, make("p", { class: "name" }, make("span", {}, "weight ", results.weight),
        make("small", {}, "half on nearest ", results.half)), plots[1].box),
      said);
    draw();
  }

  panel.place({ pairs, rotary, biases });
})();
