// Sinusoidal encoding: one dial for each pair, beside the binary counter.
"use strict";

panel.place("Pairs on circles, beside binary digits", function pairs(live, given, controls, said) {
  const { make, slider, radios, number, dial, frequency } = panel;
  const WIDTH = 8, BITS = 6, BASES = [10, 100, 1000, 10000];
  const cells = Array.from({ length: BITS }, () => make("span.bit"));
  const faces = Array.from({ length: WIDTH / 2 }, (_, j) => {
    const svg = dial("position"), [sin, cos] = ["sin", "cos"].map((wave) => number(`${wave}-${j}`)), period = make("span");
    const figure = make("figure", svg, make("figcaption",
      make("strong", `pair ${j}`), period, make("span", "sin ", sin), make("span", "cos ", cos)));
    return { figure, move: svg.hand("position"), sin, cos, period };
  });

  function draw() {
    const i = position(), base = BASES[choice()];
    faces.forEach(({ move, sin, cos, period }, j) => {
      const angle = i * frequency(j, WIDTH, base);
      sin.set(Math.sin(angle));
      cos.set(Math.cos(angle));
      move(Math.sin(angle), Math.cos(angle));
      period.textContent = `a circle in ${(2 * Math.PI / frequency(j, WIDTH, base)).toFixed(1)}`;
    });
    const binary = i.toString(2).padStart(BITS, "0");
    cells.forEach((cell, k) => {
      cell.textContent = binary[k];
      cell.classList.toggle("on", binary[k] === "1");
    });
    said.textContent = `Position ${i} is ${binary} in binary. `
      + `Pair 0 has completed ${(i / (2 * Math.PI)).toFixed(2)} circles.`;
  }
  const position = slider(controls, "position", "position", { min: 0, max: 63, value: 7 }, draw);
  const choice = radios(controls, "base", BASES, draw, BASES.indexOf(10000));
  const row = (name, order, body) => make("div.row", make("p.name", name, make("small", order)), body);
  live.append(controls,
    row("binary number", "slow \u2190 fast", make("div.bits", ...cells)),
    row("encoding", "fast \u2192 slow", make("div.dials", ...faces.map(({ figure }) => figure))), said);
  draw();
});
