// A dial for each pair of a head: its hand over the arc that training showed it.
"use strict";

panel.place("A dial for each pair", function dials(live, { width, base, trained, tokens, longest }, controls, said) {
  const { make, slider, radios, number, frequency } = panel;
  const TURN = 2 * Math.PI, STEPS = 8; // of the slider, for each doubling

  // How fast each pair rotates when the text is s times as long as those of training.
  const share = (x, from, to) => Math.min(1, Math.max(0, (x - from) / Math.max(to - from, 1e-3)));
  const blend = (plain, s, slowed) => plain * (slowed / s + 1 - slowed);
  const pair = (turns) => width * Math.log(trained / (TURN * turns)) / (2 * Math.log(base)); // that makes so many in training
  const [fast, slow] = [Math.max(Math.floor(pair(32)), 0), Math.min(Math.ceil(pair(1)), width - 1)];
  const plain = Array.from({ length: width / 2 }, (_, j) => frequency(j, width, base)), count = plain.length;
  const METHODS = {
    nothing: (plain) => plain,
    interpolation: (plain, s) => plain / s,
    "NTK-aware": (plain, s, j) => plain / s ** (j / (count - 1)),
    YaRN: (plain, s, j) => blend(plain, s, share(j, fast, slow)),
    "Llama 3": (plain, s) => blend(plain, s, 1 - share(trained * plain / TURN, 1, 4)),
  };
  const [red, apart, slowed] = ["lost", "apart", "slowed"].map(number);
  said.append(make("strong", red, ` of ${count} lost`), make("span", "neighbors ", apart, "\u00b0 apart in pair 0"),
    make("span", slowed, " slowed"));

  const grid = panel.dials(count);

  function draw() {
    const n = text(), s = Math.max(1, n / trained), now = plain.map((frequency, j) => Object.values(METHODS)[method()](frequency, s, j));
    const lost = plain.map((frequency, j) => trained * frequency < TURN && n * now[j] > trained * frequency * (1 + 1e-9));
    red.set(lost.filter(Boolean).length, 0);
    apart.set(now[0] * 360 / TURN, 0);
    slowed.set(now.filter((frequency, j) => frequency < plain[j] * (1 - 1e-9)).length, 0);
    said.classList.toggle("any", lost.includes(true));
    grid.ariaLabel = `${count} dials at ${written(n)} tokens, ${red.textContent} of them red`;
    now.forEach((speed, j) => grid.draw(j, Math.min(trained * plain[j], TURN), n * speed, speed, lost[j]));
  }

  const written = (n) => n.toLocaleString("en"), size = (k) => Math.round(2 ** (k / STEPS)), doublings = (n) => Math.round(STEPS * Math.log2(n));
  const length = slider(controls, "length", "tokens", { min: 0, max: doublings(longest), value: doublings(tokens),
    write: (k) => written(size(k)) }, draw);
  const method = radios(controls, "repair", Object.keys(METHODS), draw, 0, ["query", "key", "value", "position", "violet"]), text = () => size(length());
  live.append(controls, said, grid,
    make("p.ends", make("small", "pair 0, the fastest"), make("small", "shaded: seen in training; red: never seen"), make("small", `pair ${count - 1}`)));
  draw();
});
