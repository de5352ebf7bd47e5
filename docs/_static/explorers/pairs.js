// Sinusoidal encoding: a dial to drag for each pair, beside a binary counter to press.
"use strict";

panel.place("Pairs on circles, beside binary digits", function pairs(live, given, controls, said) {
  const { make, player, radios, number, dial, wrap, frequency } = panel;
  const WIDTH = 8, BITS = 6, BASES = [10, 100, 1000, 10000];
  const cells = Array.from({ length: BITS }, (_, k) => {
    const worth = 1 << (BITS - 1 - k), cell = make("button.bit");
    cell.onclick = () => position.to(position() ^ worth);
    return cell;
  });
  const faces = Array.from({ length: WIDTH / 2 }, (_, j) => {
    const svg = dial("position"), [sin, cos] = ["sin", "cos"].map((wave) => number(`${wave}-${j}`)), period = make("span");
    const figure = make("figure", svg, make("figcaption",
      make("strong", `pair ${j}`), period, make("span", "sin ", sin), make("span", "cos ", cos)));
    svg.pull(() => (angle) => {
      const step = frequency(j, WIDTH, BASES[choice()]);
      position.to(position() + wrap(Math.PI / 2 - angle - position() * step) / step);
    });
    return { figure, move: svg.hand("position"), sin, cos, period };
  });

  function draw() {
    const i = position(), base = BASES[choice()];
    faces.forEach(({ move, sin, cos, period }, j) => {
      const step = frequency(j, WIDTH, base), angle = i * step;
      sin.set(Math.sin(angle));
      cos.set(Math.cos(angle));
      move(Math.sin(angle), Math.cos(angle));
      period.textContent = `a circle in ${(2 * Math.PI / step).toFixed(1)}`;
    });
    const binary = i.toString(2).padStart(BITS, "0");
    cells.forEach((cell, k) => {
      cell.textContent = binary[k];
      cell.ariaLabel = `${binary[k]}, digit of ${1 << (BITS - 1 - k)}`;
      cell.ariaPressed = binary[k] === "1";
    });
    said.textContent = `Position ${i} is ${binary} in binary. `
      + `Pair 0 has completed ${(i / (2 * Math.PI)).toFixed(2)} circles.`;
  }
  const position = player(controls, "position", { max: 63, value: 7, pace: 400, write: String }, draw);
  const choice = radios(controls, "base", BASES, draw, BASES.indexOf(10000));
  const row = (name, order, body) => make("div.row", make("p.name", name, make("small", order)), body);
  live.append(controls,
    row("binary number", "slow \u2190 fast", make("div.bits", ...cells)),
    row("encoding", "fast \u2192 slow", make("div.dials", ...faces.map(({ figure }) => figure))), said);
  draw();
});
