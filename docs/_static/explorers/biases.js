// Biases on the scores: what five schemes add over the distance, on one axis, and the attention they make.
"use strict";

panel.place("Biases over the distance", function biases(live, given, controls, said) {
  const { make, slider, radios, number, plot, frequency, softmax } = panel;
  const KEYS = 128, HEADS = 8, LOW = -16, COLORS = ["key", "position", "violet", "query", "value"]; // those of fig-bias-curves
  const MOST = [0.05, 0.1, 0.2, 0.5, 1]; // where the axis of the weights may end
  const bucket = (a) => (a < 16 ? a : Math.min(31, 16 + Math.floor(16 * Math.log(a / 16) / Math.log(8))));
  const product = (a) => Array.from({ length: 64 }).reduce((sum, _, c) => sum + Math.cos(a * frequency(c, 128, 10000)), 0);
  const schemes = [
    { name: "ALiBi", sets: "slope", write: (s) => `1/${2 ** s}`, bias: (a, s) => -(2 ** -s) * a },
    { name: "T5", sets: "fall per bucket", write: (s) => (s / 8).toFixed(3), bias: (a, s) => -s / 8 * bucket(a) },
    { name: "KERPLE", sets: "factor r\u2081", write: (s) => (s / 2).toFixed(1), bias: (a, s) => -s / 2 * Math.log1p(a) },
    { name: "FIRE", sets: "function f(x)", write: (s) => `\u2212${s}x`,
      bias: (a, s) => -s * Math.log1p(0.1 * a) / (Math.log1p(0.1 * (KEYS - 1)) + 1e-6) },
    { name: "Sandwich", sets: "head", write: (s) => `${s} of ${HEADS}`,
      bias: (a, s) => (product(a) - product(0)) / s },
  ];
  const settings = [4, 1, 2, 2, 8], [added, share, near] = ["bias", "weight", "half"].map(number);
  const upper = plot("distance", KEYS, grab, ...COLORS), lower = plot("distance", KEYS, (at) => distance.to(at), ...COLORS);
  const plots = make("div.sides",
    make("div", make("p.name", make("span", "bias ", added)), upper),
    make("div", make("p.name", make("span", "weight ", share), make("small", "half on the nearest ", near)), lower));

  // A press takes the nearest curve, a drag pulls it to the nearest setting.
  function grab(at, y, pressed) {
    const nearest = (values) => values.reduce((best, value, k) => (Math.abs(value - y) < Math.abs(values[best] - y) ? k : best), 0);
    distance.to(at);
    if (pressed) choice.to(nearest(schemes.map(({ bias }, k) => bias(distance(), settings[k]))));
    else setting.to(1 + nearest(Array.from({ length: HEADS }, (_, s) => schemes[choice()].bias(distance(), s + 1))));
  }

  function draw() {
    const now = choice(), scheme = schemes[now], s = settings[now] = setting(), at = distance();
    const curves = schemes.map(({ bias }, k) => Array.from({ length: KEYS }, (_, a) => bias(a, settings[k])));
    const weights = curves.map(softmax), most = Math.max(...weights.flat());
    let half = 0;
    for (let sum = 0; sum < 0.5; half += 1) sum += weights[now][half];
    added.set(curves[now][at], 2);
    share.set(weights[now][at]);
    near.set(half, 0);
    plots.className = `sides ${COLORS[now]}`;
    upper.draw(at, LOW, 0, curves);
    lower.draw(at, 0, MOST.find((end) => end > most), weights, half, now);
    setting.label.textContent = scheme.sets;
    said.textContent = `${scheme.name}, ${scheme.sets} ${scheme.write(s)}: a key ${at} back gets ${added.textContent} `
      + `added and ${share.textContent} of the weight.`;
  }
  const choice = radios(controls, "scheme", schemes.map(({ name }) => name), () => setting.to(settings[choice()]), 0, COLORS);
  const setting = slider(controls, "setting", "", { min: 1, max: HEADS, value: 4, write: (s) => schemes[choice()].write(s) }, draw);
  const distance = slider(controls, "distance", "distance", { min: 0, max: KEYS - 1, value: 10 }, draw);
  live.append(controls, plots, said);
  draw();
});
