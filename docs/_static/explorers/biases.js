// Biases on the scores: what a scheme adds over the distance, and the attention that it makes.
"use strict";

panel.place("Biases over the distance", function biases(live, given, controls, said) {
  const { make, slider, radios, number, plot, frequency, softmax } = panel;
  const KEYS = 128, HEADS = 8, COLORS = ["key", "position", "violet", "query", "value"]; // those of fig-bias-curves
  const LEAST = [2, 4, 8, 16, 32, 64, 128], MOST = [0.02, 0.05, 0.1, 0.2, 0.5, 1]; // where an axis may end
  const bucket = (a) => (a < 16 ? a : Math.min(31, 16 + Math.floor(16 * Math.log(a / 16) / Math.log(8))));
  const product = (a) => Array.from({ length: 64 }).reduce((sum, _, c) => sum + Math.cos(a * frequency(c, 128, 10000)), 0);
  const schemes = [
    { name: "ALiBi", sets: "slope", write: (s) => `1/${2 ** s}`, bias: (a, s) => -(2 ** -s) * a },
    { name: "T5", sets: "fall per bucket", write: (s) => (s / 8).toFixed(2), bias: (a, s) => -s / 8 * bucket(a) },
    { name: "KERPLE", sets: "factor r\u2081", write: (s) => (s / 2).toFixed(1), bias: (a, s) => -s / 2 * Math.log1p(a) },
    { name: "FIRE", sets: "function f(x)", write: (s) => `\u2212${s}x`,
      bias: (a, s) => -s * Math.log1p(0.1 * a) / (Math.log1p(0.1 * (KEYS - 1)) + 1e-6) },
    { name: "Sandwich", sets: "head", write: (s) => `${s} of ${HEADS}`,
      bias: (a, s) => HEADS / (8 * s) * (product(a) - product(0)) },
  ];
  const results = { bias: number("bias"), weight: number("weight"), half: number("half") };
  const [upper, lower] = ["bias", "weight"].map((name) => plot("distance", KEYS, (at) => distance.to(at), name));
  const plots = make("div.sides",
    make("div", make("p.name", make("span", "bias ", results.bias)), upper),
    make("div", make("p.name", make("span", "weight ", results.weight), make("small", "half on the nearest ", results.half)), lower));

  function draw() {
    const scheme = schemes[choice()], s = setting(), at = distance();
    const added = Array.from({ length: KEYS }, (_, a) => scheme.bias(a, s));
    const weights = softmax(added), most = Math.max(...weights);
    let half = 0;
    for (let sum = 0; sum < 0.5; half += 1) sum += weights[half];
    results.bias.set(added[at], 2);
    results.weight.set(weights[at]);
    results.half.set(half, 0);
    plots.className = `sides ${COLORS[choice()]}`;
    upper.draw(at, -LEAST.find((end) => end > -Math.min(...added)), 0, [added]);
    lower.draw(at, 0, MOST.find((end) => end > most), [weights], half);
    setting.label.textContent = scheme.sets;
    said.textContent = `${scheme.name}, ${scheme.sets} ${scheme.write(s)}: a key ${at} back gets ${results.bias.textContent} `
      + `added and ${results.weight.textContent} of the weight.`;
  }
  const choice = radios(controls, "scheme", schemes.map(({ name }) => name), () => setting.to(setting()), 0, COLORS);
  const setting = slider(controls, "setting", "", { min: 1, max: HEADS, value: 4, write: (s) => schemes[choice()].write(s) }, draw);
  const distance = slider(controls, "distance", "distance", { min: 0, max: KEYS - 1, value: 10 }, draw);
  live.append(controls, plots, said);
  draw();
});
