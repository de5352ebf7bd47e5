// Caches: tokens arrive, and each design keeps its part of them, all bytes to one scale.
"use strict";

panel.place("Tokens arrive in four caches", function caches(live, { words, designs }, controls, said) {
  const { make, player, number } = panel;
  const most = Math.max(...designs.map(({ bytes }) => bytes)), text = words.map((word) => make("span", word));
  const boxes = designs.map(({ name, model, bytes }, k) => {
    const slots = words.map(() => make("i")), kept = number(`kept-${k}`);
    const box = make("div", { style: `--part:${bytes / most}`, class: name }, make("strong", name),
      make("div.slots", { "aria-hidden": "true" }, ...slots), make("span", kept, " KiB"), make("small", model));
    return { box, slots, kept };
  });

  function draw() {
    const now = step();
    text.forEach((word, j) => { word.className = ["", "now", "later"][1 + Math.sign(j - now)]; });
    const told = boxes.map(({ slots, kept }, k) => {
      const { name, bytes, window, sinks } = designs[k];
      const held = slots.filter((slot, j) => {
        const stays = j <= now && (!window || j < sinks || j > now - window);
        slot.className = stays ? (j < now ? "kept" : "kept new") : j < now ? "gone" : "";
        return stays;
      });
      return `${name} ${kept.set(bytes * held.length / 1024, bytes % 1024 && 1).textContent}`;
    });
    const { window, sinks } = designs[designs.length - 1], lost = now - window;
    said.replaceChildren(make("strong", words[now]), ` is token ${now + 1}`, lost < sinks ? "" : `, and the window drops ${words[lost]}`,
      `. KiB in one layer: ${told.join(", ")}.`);
  }

  const step = player(controls, "tokens", { max: words.length - 1, value: 5 }, draw);
  live.append(controls, make("p.words", { "aria-hidden": "true" }, ...text), make("div.boxes", ...boxes.map(({ box }) => box)), said);
  draw();
});
