// Ring: keys and values travel. Rows of the square are queries, as workers hold them, and columns are keys.
"use strict";

panel.place("Attention around a ring", function ring(live, { workers, balanced }, controls, said) {
  const { make, player, radios, number } = panel;
  const n = balanced.length, text = balanced.map((_, i) => i), all = text.slice(0, workers), holder = (row) => Math.floor(row * workers / n);
  const move = (box, worker) => box.style.setProperty("--turns", worker / workers);
  const boxes = (kind, word, y) => all.map((r) => make(`g.${kind}`,
    make("rect", { x: -24, y, width: 48, height: 18 }), make("text", { y: y + 12.5 }, `${word} ${r}`)));
  const queries = boxes("query", "queries", -18), keys = boxes("key", "keys", 0);
  const cells = text.map((row) => text.map((x) => make("rect", { x, y: row + holder(row) / 2, width: 0.9, height: 0.9 })));
  const lines = all.map(() => make("p")), sum = (pairs) => pairs.reduce((a, b) => a + b, 0);

  function draw() {
    const now = step(), order = mask() > 1 ? balanced : text, work = all.map(() => all.map(() => 0)); // of each worker, in each step
    cells.forEach((line, row) => line.forEach((cell, key) => {
      const r = holder(row), when = (r - holder(order.indexOf(key)) + workers) % workers, seen = !mask() || key <= order[row];
      work[r][when] += seen;
      cell.setAttribute("class", seen ? ["done", "now", "later"][Math.sign(when - now) + 1] : "");
    }));
    const longest = all.map((t) => Math.max(...work.map((pairs) => pairs[t])));
    const told = (name, times) => [number(name).set(sum(times.slice(0, now + 1)), 0), ` of ${sum(times)}`];
    queries.forEach(move);
    keys.forEach((box, s) => move(box, s + now));
    work.forEach((pairs, r) => {
      const waits = pairs[now] < longest[now];
      lines[r].className = waits ? "waits" : "";
      lines[r].replaceChildren(make("strong", `worker ${r}`), make("span", ...told(`pairs-${r}`, pairs), waits ? ", waits" : ""));
    });
    said.replaceChildren(make("strong", "time ", ...told("time", longest)), ": a step takes as long as its busiest worker");
  }

  const step = player(controls, "step", { max: workers - 1, value: 0 }, draw);
  const mask = radios(controls, "mask", ["no mask", "causal", "causal, balanced"], draw);
  live.append(controls, make("div.sides", make("svg", { viewBox: "-88 -80 176 160" }, make("circle", { r: 60, class: "rim" }), ...queries, ...keys),
    make("div.work", make("svg", { viewBox: `0 0 ${n} ${n + workers / 2 - 0.5}` }, ...cells.flat()), make("div", ...lines))), said);
  draw();
});
