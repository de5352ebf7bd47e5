// Swap the words: five words over the outputs that one attention layer gives them, in two acts that play until
// touched. A word is dragged onto another, or moved by the arrow keys, or two are picked one after the other.
"use strict";

panel.place("Swap the words", function swap(live, { words, vectors, positions }, controls, said) {
  const { make, drag, check, player, softmax, dot, mean, still, shy } = panel;
  const n = words.length, home = words.map((_, word) => word), HALF = 46, END = 106; // tenths of a second
  const attend = (rows) => rows.map((query) =>
    mean(softmax(rows.map((key) => dot(query, key) / Math.sqrt(query.length))), rows));
  const outputs = (order, encoded) => attend(order.map((word, place) =>
    vectors[word].map((entry, c) => entry + encoded * positions[place][c])));
  const swapped = (order, a, b) => order.map((word, place) => order[place === a ? b : place === b ? a : place]);
  const spoken = (order) => order.map((word) => words[word]).join(" ");
  const alike = (x, y) => x.every((entry, c) => Math.abs(entry - y[c]) < 1e-9);
  const trade = swapped(home, 1, n - 1), step = Math.atan2(...positions[1]); // of a clock's hand, from place to place

  const sentence = make("q");
  const lines = ["without", "with"].map((how) => make("span", make("output"), ` outputs the same ${how} positions`));
  said.append(sentence, make("span", ...lines));
  const title = make("strong"), stamp = make("b.stamp", { "aria-hidden": "true" });
  const row = make("div.tiles"), hint = make("small", { role: "status" }), scene = make("div.scene",
    make("p", title, make("i.first", "before"), make("i.now", "now")), row, stamp);
  const HINT = `Drag a word onto another, or ${matchMedia("(hover: none)").matches ? "tap two" : "press \u2190 \u2192"}`;
  let order = home, picked = null, dragged = false, shown = 0, quiet = false, told = "";

  const tiles = words.map((word, index) => {
    const bars = vectors[index].map((_, c) => [
      make("rect.first", { x: c + 0.06, width: 0.88, height: 1 }),
      make("rect.now", { x: c + 0.28, width: 0.44, height: 1 })]);
    const svg = make("svg", { viewBox: `0 -1.05 ${bars.length} 2.1`, preserveAspectRatio: "none", "aria-hidden": "true" },
      ...bars.flat(), make("line", { x2: bars.length, "vector-effect": "non-scaling-stroke" }));
    const clock = make("svg.clock", { viewBox: "-10 -10 20 20", "aria-hidden": "true" },
      make("circle", { r: 9 }), make("path", { d: "M 0 0 V -6.5" }));
    const mark = make("span.mark", { "aria-hidden": "true" });
    const tile = make("button", { type: "button" }, make("span.word", word), clock, svg, mark);
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
    return { tile, bars, clock, mark };
  });

  // The words on their `way` of 0 to 1 from one order to another, with as much of their positions as `encoded` says.
  function draw(from, to, way, encoded) {
    const [first, start, end] = [home, from, to].map((order) => outputs(order, encoded));
    const most = Math.max(...[...first, ...start, ...end].flat().map(Math.abs)), act = Number(encoded > 0);
    // An order is not compared with itself, also where two words alike have changed places.
    const text = spoken(to), differs = text !== spoken(home), compares = differs && way === 1;
    shown = Math.max(shown, act);
    scene.style.setProperty("--encoded", encoded);
    let changed = 0;
    to.forEach((word, b) => {
      const { tile, bars, clock, mark } = tiles[word], a = from.indexOf(word), at = a + (b - a) * way;
      const now = end[b].map((y, c) => start[a][c] + (y - start[a][c]) * Math.max(0, 2 * way - 1) ** 2);
      const then = differs ? first[word] : now, equal = alike(now, then);
      changed += !equal;
      tile.style.setProperty("--by", at - word);
      tile.style.setProperty("--lift", Math.sin(Math.PI * way) * Math.sign(a - b));
      tile.style.zIndex = Number(a !== b && way < 1);
      tile.dataset.output = now;
      tile.classList.toggle("differs", !equal);
      tile.ariaPressed = word === picked;
      tile.ariaLabel = `${words[word]}, place ${b + 1} of ${n}${compares ? `, output ${equal ? "the same" : "another"}` : ""}`;
      clock.style.rotate = `${at * step * encoded}rad`;
      mark.textContent = compares ? equal ? "=" : "\u2260" : "";
      bars.forEach((pair, c) => [then, now].forEach((values, k) => { pair[k].style.transform = `scaleY(${-values[c] / most})`; }));
    });
    title.textContent = `${act ? "With" : "Without"} positions`;
    scene.classList.toggle("stamped", compares);
    scene.classList.toggle("differs", changed > 0);
    if (compares) stamp.textContent = changed ? `${changed} of ${n} changed` : "same numbers";
    if (told === (told = [to, way === 1, act, picked].join())) return; // nothing that is said is new
    hint.textContent = picked === null ? HINT : `\u201c${words[picked]}\u201d is picked; Escape puts it back`;
    sentence.textContent = way === 1 ? text : spoken(home);
    lines.forEach((line, k) => {
      const [from, now] = [home, to].map((order) => outputs(order, k));
      const count = line.firstChild.dataset.value = now.filter((y, place) => !differs || alike(y, from[to[place]])).length;
      line.firstChild.textContent = `${count} of ${n}`;
      line.style.visibility = compares && k <= shown ? "" : "hidden";
    });
  }

  function show(next = order) { // as somebody has put them
    quiet = true;
    film.stop();
    film.to(encoded() ? END : HALF);
    quiet = false;
    row.classList.remove("plays", "cut");
    draw(order = next, order, 1, Number(encoded()));
  }

  function frame(time) { // of the play
    const second = time > HALF, t = second ? time - HALF - 12 : time;
    const ease = (from, long) => Math.min(1, Math.max(0, (t - from) / long)), way = ease(8, 18), turned = ease(-8, 12);
    row.classList.add("plays");
    row.classList.toggle("cut", second && time < HALF + 3);
    controls.querySelector("[role=switch]").checked = second;
    order = way < 0.5 ? home : trade;
    draw(home, trade, way * way * (3 - 2 * way), second ? Math.max(turned, 1e-9) : 0);
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

  const film = player(controls, "two acts", { max: END, value: 0, pace: 100, loops: true,
    write: (time) => `${time > HALF ? "with" : "without"} positions` }, () => { if (!quiet) frame(film()); });
  const encoded = check(controls, "positions", "add positions", () => show(order === home ? trade : order));
  controls.append(hint);
  frame(still ? HALF : 0);
  const acts = make("div.acts", ...(still ? [scene.cloneNode(true)] : []), scene);
  live.append(said, acts, controls);
  if (still) { // the ends of both acts, side by side
    acts.firstChild.inert = true;
    acts.querySelector(".tiles").className = "ended";
    film.to(END);
    return;
  }
  const seen = new IntersectionObserver(([{ isIntersecting }]) => { film.stop(); if (isIntersecting) film.play(); }, { threshold: 0.5 });
  seen.observe(scene);
  shy(live, said, ({ target }) => {
    seen.disconnect();
    if (target.closest(".acts")) show(); else if (target.localName !== "button") film.stop();
  });
});
