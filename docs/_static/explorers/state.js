// State: facts arrive, and each is added to a matrix or corrects what the matrix says. Rows are keys, columns values.
"use strict";

panel.place("A state of four by four", function state(live, { nouns, facts }, controls, said) {
  const { make, player, slider, radios, check, number } = panel, all = nouns.map((_, at) => at);
  const spots = all.flatMap((y) => all.map((x) => {
    const rect = make("rect", { x, y, width: 1, height: 1 }), text = make("text", { x: x + 0.5, y: y + 0.6 });
    return { rect, text, node: make("g", rect, text) };
  }));
  const rows = nouns.map((noun, y) => make("text.key", { x: -0.12, y: y + 0.6 }, noun));
  const columns = nouns.map((noun, x) => make("text.value", { x: x + 0.5, y: -0.15 }, noun));
  const told = facts.map(() => make("li")), answers = nouns.map((_, at) => number(`answer-${at}`));

  function after(order, count) { // the state after some facts, row by row
    return order.slice(0, count).reduce((old, [who, whom]) => old.map((row, y) => row.map((entry, x) => {
      const kept = gate() / 100 * entry, value = Number(x === whom);
      return y === who ? kept + (corrects() ? beta() / 100 * (value - kept) : value) : kept;
    })), all.map(() => all.map(() => 0)));
  }

  function draw() {
    const order = back() ? [...facts].reverse() : facts, count = step();
    const before = after(order, count - 1).flat(), now = after(order, count), [who] = order[count - 1] ?? [-1];
    now.flat().forEach((entry, at) => {
      const { rect, text, node } = spots[at], change = Math.sign(entry - (count ? before[at] : 0));
      rect.setAttribute("fill-opacity", Math.min(1, entry).toFixed(3));
      text.textContent = entry < 5e-3 ? "" : entry.toFixed(2);
      node.setAttribute("class", [["", "erased"][Number(change < 0)], "", "written"][change + 1] + (entry > 0.6 ? " full" : ""));
    });
    rows.forEach((row, y) => row.classList.toggle("now", y === who));
    told.forEach((line, at) => {
      line.textContent = order[at].map((noun) => `the ${nouns[noun]}`).join(" bites ");
      line.className = ["", "now", "later"][1 + Math.sign(at - count + 1)];
    });
    beta.label.parentNode.style.visibility = corrects() ? "" : "hidden";
    const heard = all.filter((x) => now[0][x] >= 5e-3);
    all.forEach((x) => answers[x].set(now[0][x], 2));
    said.replaceChildren(`Whom does the ${nouns[0]} bite? `,
      ...(heard.length ? heard.flatMap((x, at) => [at ? ", " : "", `${nouns[x]} `, answers[x]]) : ["The state says nothing"]), ".");
  }

  const corrects = radios(controls, "writing", ["add", "correct (delta rule)"], draw, 1);
  const step = player(controls, "facts", { max: facts.length, value: facts.length, write: (k) => `${k} of ${facts.length}` }, draw);
  const gate = slider(controls, "gate", "decay e\u1d4d", { min: 50, max: 100, value: 100, write: (g) => (g / 100).toFixed(2) }, draw);
  const beta = slider(controls, "beta", "\u03b2", { min: 0, max: 100, value: 100, write: (b) => (b / 100).toFixed(2) }, draw);
  const back = check(controls, "back", "in reverse order", draw);
  live.append(controls, make("div.sides", make("svg", { viewBox: "-1.05 -0.6 5.1 4.65" }, ...columns, ...rows, ...spots.map(({ node }) => node)),
    make("ol", ...told)), said);
  draw();
});
