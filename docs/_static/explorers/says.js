// What a released model wrote after longer and longer texts: all of it recorded.
"use strict";

panel.place("What the model writes", function says(live, { trained, lengths, prompts, ways }, controls, said) {
  const { make, slider, radios } = panel, names = Object.keys(ways);
  const written = (n) => n.toLocaleString("en"), begun = make("span"), went = make("strong"), where = make("small");
  function draw() {
    const k = length(), p = prompt(), n = lengths[k], row = ways[names[way()]][k];
    begun.textContent = prompts[p];
    went.textContent = row ? row[p].replace(/\s*\n\s*/g, " \u21b5 ") : " (not recorded: it fails from the start)";
    where.textContent = `${names[way()]}, ${n ? `after ${written(n)} tokens` : "nothing before it"}`
      + (n > trained ? `, beyond the ${written(trained)} of training` : "");
    said.classList.toggle("far", n > trained);
  }
  const length = slider(controls, "length", "tokens before it", { min: 0, max: lengths.length - 1, value: 0,
    write: (k) => written(lengths[k]) }, draw);
  const way = radios(controls, "way", names, draw), prompt = radios(controls, "prompt", prompts, draw);
  said.append(make("span", begun, went), where);
  live.append(controls, said);
  draw();
});
