// The listening booth: what a released model writes with each of twelve faults, and what it costs.
"use strict";

panel.place("Throw a switch, or guess the fault", function booth(live, { prompt, every, sound, faults }, controls, said) {
  const { make, check, slider, number, plot } = panel, names = Object.keys(faults), last = sound.loss.length - 1;
  const [right, wrong] = ["sound", "broken"].map(number), guess = make("button", "Guess the fault"), score = make("span");
  const curves = plot("tokens read", last + 1, (k) => read.to(k), "quiet", "broken");
  const tokens = (k) => (every * (k + 1)).toLocaleString("en");
  let on = -1, blind = false, won = 0, asked = 0;

  names.forEach((name, k) => check(controls, k, name, () => {
    const hit = k === on;
    if (!blind) return tell(hit ? -1 : k);
    blind = false;
    asked += 1;
    won += hit;
    score.textContent = `${won} of ${asked} right`;
    tell(on, hit ? "Right: " : "No, it was ");
  }));
  guess.onclick = () => {
    blind = true;
    tell((on + 1 + Math.floor((names.length - 1) * Math.random())) % names.length); // another
  };

  function tell(fault, verdict = "") {
    on = fault;
    controls.querySelectorAll("input").forEach((input, k) => (input.checked = !blind && k === on));
    const { writes } = faults[names[on]] ?? sound;
    said.replaceChildren(make("strong", blind ? "Which fault is it?" : verdict + (names[on] ?? "no fault")), prompt, make("span.types", writes));
    draw();
  }

  function draw() {
    const k = read(), lines = [sound, faults[names[on]] ?? sound].map(({ loss }) => loss);
    [right, wrong].forEach((shown, n) => shown.set(lines[n][k], 2));
    curves.draw(k, 0, 15, lines);
  }

  const { firstChild, lastChild } = curves.lastChild;
  [firstChild.textContent, lastChild.textContent] = [0, last].map(tokens);
  controls.append(make("div.control", guess, score));
  live.append(controls, make("div.sides", make("p", make("strong", "the sound model"), prompt, sound.writes), said),
    make("p.name", `loss of ${every} tokens, in nats`, make("span.key-to quiet", "sound ", right), make("span.key-to broken", "broken ", wrong)), curves);
  live.dataset.name = "booth";
  const read = slider(live, "read", "tokens read", { min: 0, max: last, value: last, write: tokens }, draw);
  tell(-1);
});
