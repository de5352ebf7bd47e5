// A dial for each pair of a head: its hand over the arc that training showed it.
"use strict";

panel.place("A dial for each pair", function dials(live, { width, base, trained, tokens, longest }, controls, said) {
  const { make, slider, radios, number, dial, frequency } = panel;
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
  const results = { lost: number("lost"), apart: number("apart"), slowed: number("slowed") };
  said.append(make("strong", results.lost, ` of ${count} lost`), make("span", "neighbors ", results.apart, "\u00b0 apart in pair 0"),
    make("span", results.slowed, " slowed"));

  const faces = plain.map(() => {
    const svg = dial("pair"), sectors = ["seen", "red", "since"].map((kind) => make(`path.${kind}`));
    svg.prepend(...sectors);
    return { svg, sectors, move: svg.hand("") };
  });
  const grid = make("div.grid", { role: "img" }, ...faces.map(({ svg }) => svg));

  const point = (angle) => `${(40 * Math.sin(angle)).toFixed(2)} ${(-40 * Math.cos(angle)).toFixed(2)}`;
  const sector = (from, to) => `M 0 0 L ${point(from)} A 40 40 0 ${Number(to - from > TURN / 2)} 1 ${point(Math.min(to, from + TURN - 1e-3))} Z`;

  function draw() {
    const n = text(), s = Math.max(1, n / trained), now = plain.map((frequency, j) => Object.values(METHODS)[method()](frequency, s, j));
    const lost = plain.map((frequency, j) => trained * frequency < TURN && n * now[j] > trained * frequency * (1 + 1e-9));
    results.lost.set(lost.filter(Boolean).length, 0);
    results.apart.set(now[0] * 360 / TURN, 0);
    results.slowed.set(now.filter((frequency, j) => frequency < plain[j] * (1 - 1e-9)).length, 0);
    said.classList.toggle("any", lost.includes(true));
    grid.ariaLabel = `${count} dials at ${written(n)} tokens, ${results.lost.textContent} of them red`;
    faces.forEach(({ svg, sectors, move }, j) => {
      const seen = Math.min(trained * plain[j], TURN), angle = n * now[j];
      svg.classList.toggle("lost", lost[j]);
      [[0, seen], [seen, lost[j] ? Math.min(angle, TURN) : seen], [angle - now[j], angle]] // the last: since the token before
        .forEach((ends, k) => sectors[k].setAttribute("d", sector(...ends)));
      move(Math.sin(angle), Math.cos(angle));
    });
  }

  const written = (n) => n.toLocaleString("en"), size = (k) => Math.round(2 ** (k / STEPS)), doublings = (n) => Math.round(STEPS * Math.log2(n));
  const length = slider(controls, "length", "tokens", { min: 0, max: doublings(longest), value: doublings(tokens),
    write: (k) => written(size(k)) }, draw);
  const method = radios(controls, "repair", Object.keys(METHODS), draw), text = () => size(length());
  live.append(controls, said, grid,
    make("p.ends", make("small", "pair 0, the fastest"), make("small", "shaded: seen in training; red: never seen"), make("small", `pair ${count - 1}`)));
  draw();
});
