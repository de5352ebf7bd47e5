// Rotary: the score of a query and a key when both move by the same shift.
"use strict";

panel.place({ rotary(live, given, controls, said) {
  const { make, slider, number, dial, plot, row, frequency, dot } = panel;
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
    return dot(encode(Q, i), encode(K, j)) / Math.sqrt(WIDTH);
  };

  const faces = [0, 1].map((j) => {
    const svg = dial("", 44);
    const arc = make("path.between");
    svg.append(arc);
    const angle = number(`angle-${j}`);
    const caption = make("figcaption", make("strong", `pair ${j}`), make("span", "angle ", angle, "\u00b0"));
    return { j, arc, angle, query: svg.hand("query"), key: svg.hand("key"), box: make("figure", svg, caption) };
  });
  const [LOW, HIGH] = [-1, 3]; // no score is below -0.40 or above 2.91
  const waves = plot(SHIFTS, "additive", "rotary");
  const results = { rotary: number("rotary"), additive: number("additive") };

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
    waves.draw(s, LOW, HIGH, ...[added, rotated].map((encode) =>
      Array.from({ length: SHIFTS }, (_, t) => score(encode, t + 8, t + 8 - offset))));
    said.textContent = `Query at ${i}, key at ${j}: rotary score ${results.rotary.textContent}, `
      + `additive score ${results.additive.textContent}.`;
  }
  const distance = slider(controls, "offset", "query ahead of key by", { min: -8, max: 8, value: 3,
    write: (value) => String(value).replace("-", "\u2212") }, draw);
  const shift = slider(controls, "shift", "shift of both", { min: 0, max: SHIFTS - 1, value: 0 }, draw);
  live.append(controls,
    row([make("span", { class: "key-to query" }, "query"), make("span", { class: "key-to key" }, "key")],
      make("div.dials", ...faces.map((face) => face.box))),
    row(["score over the shift", make("span", { class: "key-to rotary" }, "rotary ", results.rotary),
      make("span", { class: "key-to additive" }, "additive ", results.additive)], waves),
    said);
  draw();
} });
