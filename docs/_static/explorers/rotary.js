// Rotary: the score of a query and a key when both move by the same shift.
"use strict";

panel.place("Move query and key", function rotary(live, given, controls, said) {
  const { make, slider, number, dial, plot, frequency, dot } = panel;
  const Q = [1, 0, 0.5, 0.5], K = [0.8, 0.6, 0.6, -0.2], WIDTH = 4, BASE = 10000, SHIFTS = 64;
  const waves = (p, c) => [Math.cos, Math.sin].map((wave) => wave(p * frequency(c >> 1, WIDTH, BASE)));
  const rotated = (x, p) => x.map((value, c) => {
    const [cos, sin] = waves(p, c);
    return value * cos + (c % 2 ? x[c - 1] : -x[c + 1]) * sin;
  });
  const added = (x, p) => x.map((value, c) => value + waves(p, c)[1 - c % 2]);
  const score = (encode, i, j) => dot(encode(Q, i), encode(K, j)) / Math.sqrt(WIDTH);

  const faces = [0, 1].map((j) => {
    const svg = dial("", 44), arc = make("path.between"), angle = number(`angle-${j}`);
    svg.append(arc);
    const box = make("figure", svg, make("figcaption", make("strong", `pair ${j}`), make("span", "angle ", angle, "\u00b0")));
    return { j, arc, angle, query: svg.hand("query"), key: svg.hand("key"), box };
  });
  const curves = plot("shift of both", SHIFTS, (at) => shift.to(at), "additive", "rotary");
  const results = { rotary: number("rotary"), additive: number("additive") };

  function draw() {
    const s = shift(), offset = distance(), [i, j] = [s + 8, s + 8 - offset];
    const [q, k] = [rotated(Q, i), rotated(K, j)];
    for (const face of faces) {
      const c = 2 * face.j, put = (hand, [x, y], far) => hand(far * x / Math.hypot(x, y), far * y / Math.hypot(x, y));
      put(face.query, q.slice(c), 1);
      put(face.key, k.slice(c), 0.8);
      const from = Math.atan2(k[c + 1], k[c]);
      let between = Math.atan2(q[c + 1], q[c]) - from;
      between -= 2 * Math.PI * Math.round(between / (2 * Math.PI));
      face.angle.set(between * 180 / Math.PI, 1);
      const at = (angle) => `${(20 * Math.cos(angle)).toFixed(2)} ${(-20 * Math.sin(angle)).toFixed(2)}`;
      face.arc.setAttribute("d", `M ${at(from)} A 20 20 0 0 ${between > 0 ? 0 : 1} ${at(from + between)}`);
    }
    results.rotary.set(score(rotated, i, j));
    results.additive.set(score(added, i, j));
    const lines = [added, rotated].map((encode) => Array.from({ length: SHIFTS }, (_, t) => score(encode, t + 8, t + 8 - offset)));
    curves.draw(s, Math.floor(2 * Math.min(...lines.flat())) / 2, Math.ceil(2 * Math.max(...lines.flat())) / 2, lines);
    said.textContent = `Query at ${i}, key at ${j}: rotary score ${results.rotary.textContent}, `
      + `additive score ${results.additive.textContent}.`;
  }
  const distance = slider(controls, "offset", "query ahead of key by", { min: -8, max: 8, value: 3,
    write: (value) => String(value).replace("-", "\u2212") }, draw);
  const shift = slider(controls, "shift", "shift of both", { min: 0, max: SHIFTS - 1, value: 0 }, draw);
  live.append(controls, make("div.sides",
    make("div", make("div.dials", ...faces.map(({ box }) => box)),
      make("p.name", make("span.key-to query", "query"), make("span.key-to key", "key"))),
    make("div", make("p.name", "score", make("span.key-to rotary", "rotary ", results.rotary),
      make("span.key-to additive", "additive ", results.additive)), curves)), said);
  draw();
});
