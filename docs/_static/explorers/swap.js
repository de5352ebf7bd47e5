// Swap the words: five words over the outputs that one attention layer gives them. A word is dragged onto another,
// or moved by the arrow keys, or two are picked one after the other; Escape puts the first of them back.
"use strict";

panel.place("Swap the words", function swap(live, { words, vectors, positions }, controls, said) {
  const { make, drag, check, softmax, dot, mean, still, shy } = panel;
  const n = words.length, home = words.map((_, word) => word);
  const attend = (rows) => rows.map((query) =>
    mean(softmax(rows.map((key) => dot(query, key) / Math.sqrt(query.length))), rows));
  const outputs = (order, encoded) => attend(order.map((word, place) =>
    vectors[word].map((entry, c) => entry + encoded * positions[place][c])));
  const swapped = (order, a, b) => order.map((word, place) => order[place === a ? b : place === b ? a : place]);
  const trade = swapped(home, 1, n - 1);

  const sentence = make("q");
  const lines = ["without", "with"].map((how) => make("span", make("output"), ` outputs the same ${how} positions`));
  said.append(sentence, make("span", ...lines));
  const row = make("div.tiles"), hint = make("small", { role: "status" });
  const HINT = `Drag a word onto another, or ${matchMedia("(hover: none)").matches ? "tap two" : "press \u2190 \u2192"}`;
  let order = home, picked = null, dragged = false, acts = 0;

  const tiles = words.map((word, index) => {
    const bars = vectors[index].map((_, c) => [
      make("rect.first", { x: c + 0.06, width: 0.88, height: 1 }),
      make("rect.now", { x: c + 0.28, width: 0.44, height: 1 })]);
    const svg = make("svg", { viewBox: `0 -1.05 ${bars.length} 2.1`, preserveAspectRatio: "none", "aria-hidden": "true" },
      ...bars.flat(), make("line", { x2: bars.length, "vector-effect": "non-scaling-stroke" }));
    const mark = make("span.mark", { "aria-hidden": "true" });
    const tile = make("button", { type: "button" }, make("span.word", word), svg, mark);
    drag(tile, ({ clientX }) => follow(tile, index, clientX), () => { tile.classList.remove("held"); show(); });
    tile.addEventListener("click", ({ detail }) => { if (!detail || !dragged) pick(index); }); // 0: by a key
    tile.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key], place = order.indexOf(index);
      if (event.key === "Escape" && picked !== null) pick(picked);
      if (!step) return;
      event.preventDefault();
      if (words[place + step] !== undefined) show(swapped(order, place, place + step));
    });
    row.append(tile);
    return { tile, bars, mark };
  });

  function show(next = order) {
    order = next;
    hint.textContent = picked === null ? HINT : `\u201c${words[picked]}\u201d is picked; Escape puts it back`;
    sentence.textContent = order.map((word) => words[word]).join(" ");
    // An order is not compared with itself, also where two words alike have changed places.
    const told = sentence.textContent !== words.join(" "), act = Number(encoded());
    acts = Math.max(acts, act);
    const [first, now, same] = lines.map((line, k) => {
      const from = outputs(home, k), now = outputs(order, k), first = told ? order.map((word) => from[word]) : from;
      const same = now.map((output, place) => output.every((y, c) => Math.abs(y - first[place][c]) < 1e-9));
      const count = line.firstChild.dataset.value = same.filter(Boolean).length;
      line.firstChild.textContent = `${count} of ${n}`;
      line.className = (k === act ? "" : "other ") + (count < n ? "differs" : "");
      line.style.visibility = told && k <= acts ? "" : "hidden";
      return [first, now, same];
    })[act];
    const most = Math.max(...[...first, ...now].flat().map(Math.abs));
    order.forEach((word, place) => {
      const { tile, bars, mark } = tiles[word], equal = same[place];
      tile.style.setProperty("--by", place - word);
      tile.dataset.output = now[place];
      tile.classList.toggle("differs", !equal);
      tile.ariaPressed = word === picked;
      tile.ariaLabel = `${words[word]}, place ${place + 1} of ${n}${told ? `, output ${equal ? "the same" : "another"}` : ""}`;
      mark.textContent = told ? equal ? "=" : "\u2260" : "";
      bars.forEach(([before, after], c) => {
        before.style.transform = `scaleY(${-first[place][c] / most})`;
        after.style.transform = `scaleY(${-now[place][c] / most})`;
      });
    });
  }

  function pick(word) {
    const back = picked === word;
    if (picked === null) picked = word;
    else [order, picked] = [swapped(order, order.indexOf(picked), order.indexOf(word)), null];
    show();
    if (back) hint.textContent = `\u201c${words[word]}\u201d stays where it is`;
  }

  function follow(tile, word, start) {
    const base = order, from = base.indexOf(word);
    dragged = false;
    return ({ clientX }) => {
      if (!dragged && Math.abs(clientX - start) < 6) return;
      [dragged, picked] = [true, null];
      const at = Math.min(n - 1, Math.max(0, from + (clientX - start) * n / row.clientWidth));
      show(swapped(base, from, Math.round(at)));
      tile.classList.add("held");
      tile.style.setProperty("--by", at - word);
    };
  }

  live.append(said, row, controls);
  const encoded = check(controls, "positions", "add positions", () => show(order === home ? trade : order));
  controls.append(hint);
  show();

  // Once, unasked, the last word trades places with the second, and then all get positions.
  const act = (positions) => { controls.firstChild.firstChild.checked = positions; show(trade); };
  const later = [[1200, false], [3600, true]].map(([wait, on]) => (still ? act(on) : setTimeout(act, wait, on)));
  shy(live, said, () => later.forEach(clearTimeout));
});
