// Swap the words: five words over the outputs that one attention layer gives them. A word is dragged onto another,
// or moved by the arrow keys, or two are picked one after the other; Escape puts the first of them back.
"use strict";

panel.place("Swap the words", function swap(live, { words, vectors, positions }, controls, said) {
  const { make, drag, check, softmax, dot, mean, still, shy } = panel;
  const WAIT = 1500; // milliseconds until two words swap
  const n = words.length, home = words.map((_, word) => word);
  const attend = (rows) => rows.map((query) =>
    mean(softmax(rows.map((key) => dot(query, key) / Math.sqrt(query.length))), rows));
  const outputs = (order) => attend(order.map((word, place) =>
    vectors[word].map((entry, c) => entry + (encoded() ? positions[place][c] : 0))));
  const swapped = (order, a, b) => order.map((word, place) => order[place === a ? b : place === b ? a : place]);

  const sentence = make("q"), count = make("output", { "data-name": "same" });
  said.append(sentence, make("span", count, " outputs the same"));
  const row = make("div.tiles"), hint = make("small", { role: "status" });
  const HINT = `Drag a word onto another, or ${matchMedia("(hover: none)").matches ? "tap two" : "press \u2190 \u2192"}`;
  let order = home, picked = null, dragged = false;

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
    const first = outputs(home), now = outputs(order);
    const most = Math.max(...first.flat().map(Math.abs), ...now.flat().map(Math.abs));
    let same = 0;
    order.forEach((word, place) => {
      // Two words alike are one: it is enough that either of them had this output.
      const twin = home.find((other) => words[other] === words[word] && now[place].every((y, c) => Math.abs(y - first[other][c]) < 1e-9));
      const { tile, bars, mark } = tiles[word], equal = twin !== undefined, was = first[twin ?? word];
      same += equal;
      tile.style.setProperty("--by", place - word);
      tile.dataset.output = now[place];
      tile.classList.toggle("differs", !equal);
      tile.ariaPressed = word === picked;
      tile.ariaLabel = `${words[word]}, place ${place + 1} of ${n}, output ${equal ? "the same" : "another"}`;
      mark.textContent = equal ? "=" : "\u2260";
      bars.forEach(([before, after], c) => {
        before.style.transform = `scaleY(${-was[c] / most})`;
        after.style.transform = `scaleY(${-now[place][c] / most})`;
      });
    });
    sentence.textContent = order.map((word) => words[word]).join(" ");
    count.dataset.value = same;
    count.textContent = `${same} of ${n}`;
    said.classList.toggle("differs", same < n);
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
      const wide = row.clientWidth / n, to = Math.round(from + (clientX - start) / wide);
      show(swapped(base, from, Math.min(n - 1, Math.max(0, to))));
      tile.classList.add("held");
      tile.style.setProperty("--by", Math.min(n - 1, Math.max(0, from + (clientX - start) / wide)) - word);
    };
  }

  live.append(said, row, controls);
  const encoded = check(controls, "positions", "add positions", () => show());
  controls.append(hint);
  show();

  // Once, without being asked, the last word swaps with the second.
  const later = still ? 0 : setTimeout(() => show(swapped(order, 1, n - 1)), WAIT);
  shy(live, said, () => clearTimeout(later));
});
