// Induction: what a head looks at as training goes on, and the loss. Rows are queries, columns are keys.
"use strict";

panel.place("A head that forms", function induction(live, { every, text, runs }, controls, said) {
  const { make, player, radios, number, plot } = panel, roles = ["the letter before", "what followed last time"];
  const cells = [...text].flatMap((_, y) => [...text.slice(0, y + 1)].map((_, x) => make("rect", { x, y, width: 1, height: 1 })));
  const letters = [...text].flatMap((letter, k) => [{ x: k + 0.5, y: -0.3 }, { x: -0.6, y: k + 0.8 }].map((at) => make("text", at, letter)));
  const curves = plot("step", runs[0].loss.length, (k) => step.to(k), "query", "quiet"), [loss, score] = ["loss", "score"].map(number);

  function draw() {
    const k = step(), run = runs[scheme()], role = head();
    [...run.maps[role][k]].forEach((shade, at) => cells[at].setAttribute("fill-opacity", parseInt(shade, 36) / 35));
    curves.draw(k, 0, 7, runs.map((each) => each.loss));
    loss.set(run.loss[k], 2);
    score.set(run.scores[role][k], 2);
    said.replaceChildren(`Step ${every * k}: layer ${role}, head ${run.heads[role]} gives `, score, ` to ${roles[role]}. Loss `, loss, ".");
  }

  const scheme = radios(controls, "positions", ["rotary", "mask alone"], draw, 0, ["query", "quiet"]);
  const head = radios(controls, "head", ["layer 0", "layer 1"], draw, 1);
  const step = player(controls, "step", { max: runs[0].loss.length - 1, value: 0, write: (k) => `${every * k}` }, draw);
  curves.lastChild.lastChild.textContent = every * (runs[0].loss.length - 1);
  live.append(controls, make("div.sides", make("svg", { viewBox: "-1 -1 21.2 21.2" }, ...cells, ...letters),
    make("div", make("p.name", "loss of the second copy, in nats"), curves)), said);
  draw();
});
