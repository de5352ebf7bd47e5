// Tiles: causal attention on a chip that fills and empties. Bars are exponentials over the largest so far in their row.
"use strict";

panel.place("Attention in tiles", function tiles(live, { rows, values, size, first }, controls) {
  const { make, player, number, dot } = panel;
  const n = rows.length, order = rows.flatMap((row, i) => row.flatMap((_, j) => (i % size || j % size ? [] : [[i, j]])));
  const rect = (kind, x, y, width, height) => make(`rect.${kind}`, { x, y, width, height });
  const boxes = order.map(([i, j]) => rect("box", j, i, size, size));
  const bars = rows.map((row, i) => row.map((_, j) => rect("bar", j + 0.15, i + 0.08, 0.7, 0.92)));
  const keys = rect("key", 0, -0.7, size, 0.5), queries = rect("query", -0.7, 0, 0.5, size);
  const word = (text, x, transform) => make("text", { x, y: -1, transform }, text);
  const [outputs, frame] = ["value", "value strip"].map((kind) => rect(kind, n + 0.2, 0, 0.5, n));
  const square = make("svg", { viewBox: `-1.7 -1.7 ${n + 3.2} ${n + 1.8}` }, ...boxes, ...bars.flat(), keys, queries, outputs, frame,
    rect("key strip", 0, -0.7, n, 0.5), rect("query strip", -0.7, 0, 0.5, n), word("keys and values", n / 2, ""),
    word("queries", -n / 2, "rotate(-90)"), word("outputs", n / 2, `rotate(90) translate(0 ${-n})`));
  boxes.forEach((box, k) => (box.onclick = () => step.to(k)));
  const states = rows.slice(0, size).map(() => make("div.state")), slots = make("div.slots"), held = [];

  // What is kept of a row: its largest, and two sums measured against it.
  function read(row, start) {
    const now = row.slice(start, start + size), was = start ? read(row, start - size) : { most: 0, sums: [0, 0] };
    const most = Math.max(was.most, ...now), shrink = was.most / most;
    const plus = [values.map(() => 1), values].map((column) => dot(now, column.slice(start)) / most);
    return { was, most, shrink, plus, sums: plus.map((more, c) => shrink * was.sums[c] + more) };
  }

  function draw() {
    const [i, j] = order[step()], fixed = (value) => value.toFixed(1);
    const line = (name, text, value, digits = 1) => [make("span", name), make("span", ...text, " = ", number(name).set(value, digits))];
    boxes.forEach((box, k) => box.setAttribute("class", `box ${["done", "now", ""][Math.sign(k - step()) + 1]}`));
    [keys.style.translate, queries.style.translate] = [`${j}px`, `0 ${i}px`];
    outputs.style.scale = `1 ${(i === j ? i + size : i) / n}`;
    ["query", "key", "value"].flatMap((kind, k) => states.map((_, r) => [kind, r + (k ? j : i)])).forEach(([kind, at], c) => {
      const was = held[c], text = kind[0] + at;
      if (was?.textContent === text) return;
      slots.append(held[c] = make(`i.${kind}`, { style: `grid-area: 1 / ${c + 1}` }, text));
      was?.classList.add("gone");
      setTimeout(() => was?.remove(), 600);
    });
    bars.flat().forEach((bar) => (bar.style.scale = "1 0")); // forgotten, or not yet read
    states.forEach((state, r) => {
      const row = rows[i + r], { was, most, shrink, plus, sums } = read(row, j), rises = j && shrink < 1;
      state.classList.toggle("rises", rises);
      state.replaceChildren(make("strong", `query ${i + r}`),
        ...line("maximum", [rises ? `ln ${was.most} \u2192 ` : "", `ln ${most}`], Math.log(most), 2),
        ...["sum", "weighted sum"].flatMap((name, c) =>
          line(name, [make("b", fixed(shrink)), ` \u00d7 ${fixed(was.sums[c])} + ${fixed(plus[c])}`], sums[c])),
        ...line("output so far", [`${fixed(sums[1])} / ${fixed(sums[0])}`], sums[1] / sums[0], 2));
      row.slice(0, j + size).forEach((power, k) => {
        bars[i + r][k].style.scale = `1 ${power / most}`;
        bars[i + r][k].classList.toggle("now", k >= j);
      });
    });
  }

  const step = player(controls, "tile", { max: order.length - 1, value: first }, draw);
  live.append(controls, make("div.sides", square, make("div.chip", { role: "status" }, slots, ...states)));
  draw();
});
