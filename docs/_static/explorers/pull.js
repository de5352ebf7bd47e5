// Pull the query: three keys, the weights that a query gives them, and its output among their values. With a width,
// the scores grow as its square root, as those of random queries and keys do.
"use strict";

panel.place("Pull the query", function pull(live, { keys, values, query, scale, widths }, controls, said) {
  const { make, drag, point, slider, number, check, softmax, dot, mean } = panel;
  const UNIT = 44, STEP = 5 * Math.PI / 180, LONGEST = 1.1, LOW = "\u2080\u2081\u2082", STEEPEST = 0.25; // of a softmax: half against half
  const svg = (...children) => make("svg", { viewBox: "-60 -58 120 112" }, ...children);
  const at = ([x, y], far = 1) => [far * UNIT * x, -far * UNIT * y].map((c) => c.toFixed(2)); // y points up
  const put = (element, point, a, b) => at(point).forEach((value, n) => element.setAttribute([a, b][n], value));
  const label = (text, point, role) => {
    const [x, y] = at(point, 1.24);
    return make("text", { x, y, class: role, "text-anchor": "middle", "dominant-baseline": "central" }, text);
  };

  const hands = keys.map((key) => {
    const line = make("line.hand key");
    put(line, key, "x2", "y2");
    return line;
  });
  const hand = make("line.hand query"), tip = make("circle.tip query", { r: 6 });
  const grip = make("g.grip", { tabindex: 0, role: "slider", "aria-label": "query",
    "aria-valuemin": 0, "aria-valuemax": 359 }, make("circle", { r: 14, class: "around" }), tip);
  const plane = svg(make("circle", { r: UNIT, class: "rim" }), ...hands,
    ...keys.map((key, j) => label(`k${LOW[j]}`, key, "key")), hand, grip);
  const corners = values.map((value) => at(value)).join(" L ");
  const threads = values.map(() => make("line.thread"));
  const output = make("circle.output", { r: 6 });
  const hull = svg(make("path", { d: `M ${corners} Z`, class: "hull" }), ...threads, output,
    ...values.map((value, j) => label(`v${LOW[j]}`, value, "value")));
  plane.ariaHidden = null;

  const bar = (text, name, role) => {
    const fill = make("i", { class: role }), score = make("span.score"), shown = number(name);
    const line = make("div.bar", make("span", text), score, make("span.track", fill), shown);
    return { line, score, set: (value, most) => { fill.style.width = `${100 * value / most}%`; shown.set(value, 3); } };
  };
  const bars = keys.map((_, j) => bar(`v${LOW[j]}`, `weight-${j}`, "value"));
  const steep = bar("gradient", "gradient", "query");
  const place = ["x", "y"].map((axis) => number(`output-${axis}`));

  function draw() {
    const d = width(), factor = scale * (widths && !divided() ? Math.sqrt(d) : 1);
    const scores = keys.map((key) => factor * dot(query, key)), weights = softmax(scores), y = mean(weights, values);
    put(hand, query, "x2", "y2");
    grip.style.transform = `translate(${at(query).join("px, ")}px)`;
    const angle = Math.round(Math.atan2(query[1], query[0]) * 180 / Math.PI + 360) % 360;
    grip.ariaValueNow = angle;
    grip.ariaValueText = `${angle} degrees, length ${Math.hypot(...query).toFixed(2)}`;
    output.style.transform = `translate(${at(y).join("px, ")}px)`;
    weights.forEach((weight, j) => {
      hands[j].style.strokeWidth = threads[j].style.strokeWidth = 1.5 + 6 * weight;
      put(threads[j], values[j], "x1", "y1");
      put(threads[j], y, "x2", "y2");
      bars[j].set(weight, 1);
      bars[j].score.textContent = scores[j].toFixed(1).replace("-", "\u2212");
    });
    steep.set(Math.max(...weights.map((weight) => weight * (1 - weight))), STEEPEST);
    place.forEach((shown, c) => shown.set(y[c], 2));
    said.textContent = `Weights ${weights.map((weight) => weight.toFixed(2)).join(", ")}`
      + `${widths ? `, gradient ${steep.line.lastChild.textContent} of at most ${STEEPEST}` : ""}.`;
  }

  function to([x, y]) {
    const shrink = Math.min(1, LONGEST / Math.hypot(x, y));
    query = [x * shrink, y * shrink];
    draw();
  }
  drag(plane, () => {
    live.classList.add("held");
    return (event) => {
      const { x, y } = point(plane, event);
      to([x / UNIT, -y / UNIT]);
    };
  }, () => live.classList.remove("held"));
  grip.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [STEP, 0], ArrowRight: [-STEP, 0], ArrowUp: [0, 0.05], ArrowDown: [0, -0.05] }[event.key];
    if (!move) return;
    event.preventDefault();
    const length = Math.max(0.05, Math.hypot(...query) + move[1]), angle = Math.atan2(query[1], query[0]) + move[0];
    to([length * Math.cos(angle), length * Math.sin(angle)]);
  });

  const size = (k) => Math.round(2 ** (k / 4));
  const steps = widths && slider(controls, "width", "width d", { min: 8, max: 40, value: 8, write: (k) => String(size(k)) }, draw);
  const width = () => (widths ? size(steps()) : 1);
  const divided = widths && check(controls, "divide", "divide by \u221ad", draw);
  live.append(...(widths ? [controls] : []), make("div.planes",
    make("figure", plane, make("figcaption", "pull the query")),
    make("figure", hull, make("figcaption", "output (", place[0], ", ", place[1], ")")),
    make("div.bars", make("div.bar", ...["", "score", "weight"].map((text) => make("small", text))), ...bars.map(({ line }) => line), ...(widths ? [steep.line] : []))), said);
  draw();
});
