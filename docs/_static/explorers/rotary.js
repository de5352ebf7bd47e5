// Rotary: the score of a query and a key when both move by the same shift.
"use strict";

panel.place("Move query and key", function rotary(live, given, controls, said) {
  const { make, slider, number, dial, plot, wrap, frequency, dot } = panel;
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
    const face = { j, arc, angle, query: svg.hand("query"), key: svg.hand("key"), box };
    svg.pull((start) => { // the query takes the key along, the key changes the offset
      const [query, key] = face.ends.map((end) => Math.abs(wrap(start - end))), held = Number(key < query);
      return (angle) => {
        const by = wrap(angle - face.ends[held]) / frequency(j, WIDTH, BASE);
        if (held) distance.to(distance() - by); else shift.to(shift() + by);
      };
    });
    return face;
  });
  const curves = plot("shift of both", SHIFTS, (at) => shift.to(at), "additive", "rotary");
  const [additive, rotary] = ["additive", "rotary"].map(number);

  function draw() {
    const s = shift(), offset = distance(), [i, j] = [s + 8, s + 8 - offset];
    const [q, k] = [rotated(Q, i), rotated(K, j)];
    for (const face of faces) {
      const c = 2 * face.j, at = (angle, far) => [far * Math.cos(angle), far * Math.sin(angle)];
      const [to, from] = face.ends = [q, k].map((x) => Math.atan2(x[c + 1], x[c])), between = wrap(to - from);
      face.query(...at(to, 1));
      face.key(...at(from, 0.8));
      face.angle.set(between * 180 / Math.PI, 1);
      face.arc.setAttribute("d", `M ${at(-from, 20)} A 20 20 0 0 ${Number(between < 0)} ${at(-to, 20)}`);
    }
    rotary.set(score(rotated, i, j));
    additive.set(score(added, i, j));
    const lines = [added, rotated].map((encode) => Array.from({ length: SHIFTS }, (_, t) => score(encode, t + 8, t + 8 - offset)));
    curves.draw(s, Math.floor(2 * Math.min(...lines.flat())) / 2, Math.ceil(2 * Math.max(...lines.flat())) / 2, lines);
    said.textContent = `Query at ${i}, key at ${j}: rotary score ${rotary.textContent}, `
      + `additive score ${additive.textContent}.`;
  }
  const distance = slider(controls, "offset", "query ahead of key by", { min: -8, max: 8, value: 3,
    write: (value) => String(value).replace("-", "\u2212") }, draw);
  const shift = slider(controls, "shift", "shift of both", { min: 0, max: SHIFTS - 1, value: 0 }, draw);
  live.append(controls, make("div.sides",
    make("div", make("div.dials", ...faces.map(({ box }) => box)),
      make("p.name", make("span.key-to query", "query"), make("span.key-to key", "key"))),
    make("div", make("p.name", "score", make("span.key-to rotary", "rotary ", rotary),
      make("span.key-to additive", "additive ", additive)), curves)), said);
  draw();
});
