// Sixty-four dials: each pair of a head as a hand, over the arc that training showed it.
"use strict";

panel.place("A dial for each pair", function dials(live, given, controls, said) {
  const { make, slider, radios, number } = panel;
  const TURN = 2 * Math.PI, TOP = -TURN / 4, STEPS = 8; // of the slider, for each doubling

  // How fast each pair rotates when the text is s times as long as those of training.
  const share = (x, from, to) => Math.min(1, Math.max(0, (x - from) / Math.max(to - from, 1e-3)));
  const blend = (plain, s, slowed) => plain * (slowed / s + 1 - slowed);
  const METHODS = {
    nothing: (plain) => plain,
    interpolation: (plain, s) => plain.map((frequency) => frequency / s),
    "NTK-aware": (plain, s) => plain.map((frequency, j) => frequency / s ** (j / (plain.length - 1))),
    YaRN(plain, s, { width, base, trained }) {
      const at = (turns) => width * Math.log(trained / (TURN * turns)) / (2 * Math.log(base));
      const fast = Math.max(Math.floor(at(32)), 0), slow = Math.min(Math.ceil(at(1)), width - 1);
      return plain.map((frequency, j) => blend(frequency, s, share(j, fast, slow)));
    },
    "Llama 3": (plain, s, { trained }) =>
      plain.map((frequency) => blend(frequency, s, 1 - share(trained * frequency / TURN, 1, 4))),
  };
  const { width, base, trained, tokens, longest } = given;
  const plain = Array.from({ length: width / 2 }, (_, j) => base ** (-2 * j / width)), count = plain.length;
  const doublings = (n) => Math.round(STEPS * Math.log2(n)), written = (n) => n.toLocaleString("en");
  const canvas = make("canvas", { role: "img" });
  const results = { lost: number("lost"), apart: number("apart"), slowed: number("slowed") };
  said.append(make("strong", results.lost, ` of ${count} lost`), make("span", "neighbors ", results.apart, "\u00b0 apart in pair 0"),
    make("span", results.slowed, " slowed"));

  const text = () => Math.round(2 ** (length() / STEPS));

  function draw() {
    const n = text(), now = Object.values(METHODS)[method()](plain, Math.max(1, n / trained), given);
    const lost = plain.map((frequency, j) => trained * frequency < TURN && n * now[j] > trained * frequency * (1 + 1e-9));
    results.lost.set(lost.filter(Boolean).length, 0);
    results.apart.set(now[0] * 360 / TURN, 0);
    results.slowed.set(now.filter((frequency, j) => frequency < plain[j] * (1 - 1e-9)).length, 0);
    said.classList.toggle("any", lost.includes(true));
    canvas.setAttribute("aria-label", `${count} dials at ${written(n)} tokens, ${results.lost.textContent} of them red`);
    paint(n, now, lost);
  }

  function paint(n, now, lost) {
    const wide = canvas.clientWidth, columns = wide < 480 ? 8 : 16, cell = wide / columns, r = 0.4 * cell;
    if (!wide) return; // not on the page yet
    canvas.style.height = `${cell * count / columns}px`;
    const dense = window.devicePixelRatio || 1, pen = canvas.getContext("2d");
    [canvas.width, canvas.height] = [wide * dense, cell * count / columns * dense];
    const style = getComputedStyle(canvas), color = (name) => style.getPropertyValue(`--${name}`);
    pen.scale(dense, dense);
    pen.lineCap = "round";
    const sector = (from, to, alpha) => {
      pen.globalAlpha = alpha;
      pen.beginPath();
      pen.moveTo(0, 0);
      pen.arc(0, 0, r, TOP + from, TOP + to);
      pen.fill();
      pen.globalAlpha = 1;
    };
    const hand = (angle) => {
      pen.lineWidth = 2.5;
      pen.beginPath();
      pen.moveTo(0, 0);
      pen.lineTo(r * Math.cos(TOP + angle), r * Math.sin(TOP + angle));
      pen.stroke();
    };
    plain.forEach((frequency, j) => {
      const seen = trained * frequency, angle = n * now[j], bad = color("color-problematic");
      pen.save();
      pen.translate((j % columns + 0.5) * cell, (Math.floor(j / columns) + 0.5) * cell);
      pen.fillStyle = color("position");
      sector(0, Math.min(seen, TURN), 0.3);
      pen.fillStyle = bad;
      if (lost[j]) sector(seen, Math.min(angle, TURN), 0.7);
      pen.strokeStyle = color("quiet");
      pen.lineWidth = 1;
      pen.beginPath();
      pen.arc(0, 0, r, 0, TURN);
      pen.stroke();
      pen.fillStyle = pen.strokeStyle = lost[j] ? bad : color("color-foreground-primary");
      sector(angle - now[j], angle, 0.35); // since the token before
      hand(angle);
      pen.restore();
    });
  }

  const length = slider(controls, "length", "tokens", { min: 0, max: doublings(longest), value: doublings(tokens),
    write: (k) => written(Math.round(2 ** (k / STEPS))) }, () => draw());
  const method = radios(controls, "repair", Object.keys(METHODS), () => draw());
  live.append(controls, said, canvas,
    make("p.ends", make("small", "pair 0, the fastest"), make("small", "shaded: seen in training; red: never seen"), make("small", `pair ${count - 1}`)));
  draw();
  new ResizeObserver(draw).observe(live);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  new MutationObserver(draw).observe(document.body, { attributeFilter: ["data-theme"] });
});
