// Swap the words: five words over the outputs of an attention layer, in two acts that play until touched.
"use strict";

panel.place("Swap the words", function swap(live, { words, vectors, positions }, controls, said) {
  const { make, drag, check, player, softmax, dot, mean, still, shy } = panel;
  const n = words.length, home = words.map((_, word) => word), HALF = 46, END = 106; // tenths of a second
  function outputs(order, encoded) {
    const rows = order.map((word, place) => vectors[word].map((entry, c) => entry + encoded * positions[place][c]));
    return rows.map((query) => mean(softmax(rows.map((key) => dot(query, key) / Math.sqrt(query.length))), rows));
  }
  const swapped = (order, a, b) => order.map((word, place) => order[place === a ? b : place === b ? a : place]);
  const spoken = (order) => order.map((word) => words[word]).join(" ");
  const alike = (x, y) => x.every((entry, c) => Math.abs(entry - y[c]) < 1e-9);
  const trade = swapped(home, 1, n - 1), step = Math.atan2(...positions[1]); // of a clock's hand, from place to place

  const ways = ["without positions", "with positions"], sentence = make("q");
  const lines = ways.map((way) => make("span", make("output"), ` outputs the same ${way}`));
  said.append(sentence, make("span", ...lines));
  const title = make("strong"), stamp = make("b.stamp", { "aria-hidden": "true" });
  const row = make("div.tiles"), hint = make("small", { role: "status" }), scene = make("div.scene",
    make("p", title, make("i.first", "before"), make("i.now", "now")), row, stamp);
  let order = home, picked = null, dragged = false, shown = 0, quiet = false, told = "";

  const tiles = words.map((word, index) => {
    const bars = vectors[index].map((_, c) => [["first", 0.06], ["now", 0.28]].map(([name, x]) =>
      make(`rect.${name}`, { x: c + x, width: 1 - 2 * x, height: 1 })));
    const svg = make("svg", { viewBox: `0 -1.05 ${bars.length} 2.1`, preserveAspectRatio: "none" },
      ...bars.flat(), make("line", { x2: bars.length }));
    const clock = make("svg.clock", { viewBox: "-10 -10 20 20" }, make("circle", { r: 9 }), make("path", { d: "M 0 0 V -6.5" }));
    const mark = make("span.mark");
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
    return { tile, bars, mark };
  });

  // The words on their `way` from one order to another, with a part `encoded` of their positions added.
  function draw(from, to, way, encoded) {
    const [first, start, end] = [home, from, to].map((order) => outputs(order, encoded));
    const most = Math.max(...[...first, ...start, ...end].flat().map(Math.abs)), act = Number(encoded > 0);
    // An order is not compared with itself, also where two words alike have changed places.
    const text = spoken(to), differs = text !== spoken(home), compares = differs && way === 1;
    shown = Math.max(shown, act);
    scene.style.setProperty("--encoded", encoded);
    let changed = 0;
    to.forEach((word, b) => {
      const { tile, bars, mark } = tiles[word], a = from.indexOf(word), at = a + (b - a) * way;
      const lift = Math.sin(Math.PI * way) * Math.sign(a - b);
      const now = end[b].map((y, c) => start[a][c] + (y - start[a][c]) * Math.max(0, 2 * way - 1) ** 2);
      const then = differs ? first[word] : now, equal = alike(now, then);
      changed += !equal;
      tile.style = `--by: ${at - word}; --lift: ${lift}; --turn: ${at * step * encoded}rad; z-index: ${Math.ceil(Math.abs(lift) - 1e-9)}`;
      tile.dataset.output = now;
      tile.classList.toggle("differs", !equal);
      tile.ariaPressed = word === picked;
      tile.ariaLabel = `${words[word]}, place ${b + 1} of ${n}${compares ? `, output ${equal ? "the same" : "another"}` : ""}`;
      mark.textContent = compares ? equal ? "=" : "\u2260" : "";
      bars.forEach((pair, c) => pair.forEach((bar, k) => { bar.style.transform = `scaleY(${-[then, now][k][c] / most})`; }));
    });
    title.textContent = ways[act];
    scene.classList.toggle("stamped", compares);
    scene.classList.toggle("differs", changed > 0);
    if (compares) stamp.textContent = changed ? `${changed} of ${n} changed` : "same numbers";
    if (told === (told = [to, way === 1, act, picked].join())) return; // said already
    hint.textContent = picked === null ? "Drag a word, tap two, or press \u2190 \u2192" : `\u201c${words[picked]}\u201d is picked; Escape puts it back`;
    sentence.textContent = way === 1 ? text : spoken(home);
    lines.forEach((line, k) => {
      const [from, now] = [home, to].map((order) => outputs(order, k));
      const count = line.firstChild.dataset.value = now.filter((y, place) => !differs || alike(y, from[to[place]])).length;
      line.firstChild.textContent = `${count} of ${n}`;
      line.hidden = !compares || k > shown;
    });
  }

  function show(next = order) {
    quiet = true;
    film.stop();
    film.to(encoded() ? END : HALF);
    quiet = false;
    row.className = "tiles";
    draw(order = next, order, 1, Number(encoded()));
  }

  function frame(time) {
    const second = time > HALF, t = second ? time - HALF - 12 : time;
    const part = (from, long) => Math.min(1, Math.max(0, (t - from) / long)), way = part(8, 18);
    row.className = `tiles plays ${second && time < HALF + 3 ? "cut" : ""}`;
    controls.querySelector("[role=switch]").checked = second;
    order = way < 0.5 ? home : trade;
    draw(home, trade, way * way * (3 - 2 * way), second * Math.max(part(-8, 12), 1e-9));
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

  const film = player(controls, "acts", { max: END, value: 0, pace: 100, loops: true,
    write: (time) => ways[Number(time > HALF)] }, () => { if (!quiet) frame(film()); });
  const encoded = check(controls, "positions", "add positions", () => show(order === home ? trade : order));
  controls.append(hint);
  frame(still ? HALF : 0);
  const acts = make("div.acts", scene);
  live.append(said, acts, controls);
  const near = new IntersectionObserver(([seen]) => film[seen.isIntersecting ? "play" : "stop"](), { threshold: 0.5 });
  if (still) { // the ends of both acts, side by side
    const ended = scene.cloneNode(true);
    ended.inert = true;
    ended.querySelector(".tiles").className = "ended";
    acts.prepend(ended);
    film.to(END);
  } else near.observe(scene);
  shy(live, said, ({ target }) => {
    near.disconnect();
    if (target.closest(".acts")) show(); else if (target.localName !== "button") film.stop();
  });
});
