// The atlas wall: the maps of all schemes, each a window of 24 tokens that moves along the 64 of its card.
"use strict";

panel.place("The maps of all schemes", function wall(live, { schemes, chips, maps: packed }, controls, said) {
  const { make, paint, slider, number, check, home } = panel;
  const LONG = 64, SEEN = 24, INK = 0xd08f2b, STEP = 8; // pixels of a drag for each token
  const grid = make("div.maps"), steady = number("still"), left = make("span"), moved = make("span.moves");
  said.append(make("strong", steady, ` of ${schemes.length}`), " stand still", moved, left);
  steady.textContent = schemes.length; // until the maps are unpacked
  let maps, before;

  const tiles = schemes.map(({ name, place, anchor, has }) => {
    if (place !== before) grid.append(make("strong", before = place));
    const canvas = make("canvas", { "aria-hidden": "true" });
    const tile = make("a", { href: `${home}#${anchor}`, target: "_top", draggable: "false" }, canvas, make("span", name));
    grid.append(tile);
    return { tile, has, canvas };
  });

  function draw() {
    if (!maps) return;
    const s = shift(), wanted = chosen.map((chip) => chip());
    let same = 0, fit = 0;
    tiles.forEach(({ tile, has, canvas }, k) => {
      const shade = (i, j) => maps[(k * LONG + i) * LONG + j], fits = has.every((yes, mark) => yes || !wanted[mark]);
      let moves = false;
      paint(canvas, SEEN, INK, (i, j) => {
        moves ||= shade(s + i, s + j) !== shade(i, j);
        return 23 * shade(s + i, s + j); // of 12 shades
      });
      tile.classList.toggle("moves", moves);
      tile.classList.toggle("dim", !fits);
      same += !moves;
      fit += fits;
    });
    steady.set(same, 0);
    moved.textContent = s ? `, \u2260 ${schemes.length - same} change with the absolute position` : "";
    left.textContent = wanted.includes(true) ? `; ${fit} fit` : "";
  }

  const shift = slider(controls, "shift", "shift by", { min: 0, max: LONG - SEEN, value: 0 }, draw);
  const chosen = chips.map((text, k) => check(controls, `chip-${k}`, text, draw));
  live.append(controls, said, grid);

  let from;
  grid.addEventListener("pointerdown", ({ clientX }) => { from = clientX - STEP * shift(); });
  grid.addEventListener("pointermove", ({ clientX, buttons, pointerId }) => {
    const s = Math.round((clientX - from) / STEP);
    if (!buttons || s === shift()) return;
    grid.setPointerCapture(pointerId); // so that no card opens
    shift.to(s);
  });

  const stream = new Blob([Uint8Array.from(atob(packed), (c) => c.charCodeAt())]).stream();
  new Response(stream.pipeThrough(new DecompressionStream("deflate"))).arrayBuffer().then((bytes) => {
    maps = new Uint8Array(bytes);
    draw();
  });
});
