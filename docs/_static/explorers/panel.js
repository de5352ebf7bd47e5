// What all explorers share. Each takes the place of its still twin, and a test compares its numbers with the
// library's: every <output> carries the full value in `data-value`.
"use strict";

const panel = (() => {
  const DRAWN = ["svg", "circle", "line", "path", "text", "g", "rect"];

  // make("p.name", "a word"), or with attributes before what it holds.
  function make(name, ...parts) {
    const [tag, type] = name.split("."), attributes = parts[0]?.constructor === Object ? parts.shift() : {};
    const element = DRAWN.includes(tag)
      ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(type ? { class: type, ...attributes } : attributes)) element.setAttribute(name, value);
    if (tag === "svg") element.ariaHidden = "true";
    element.append(...parts);
    return element;
  }

  // `grab` is told where a drag begins and returns what follows it.
  function drag(element, grab, drop = () => {}) {
    element.addEventListener("pointerdown", (event) => {
      const follow = grab(event);
      follow(event);
      element.setPointerCapture(event.pointerId);
      element.onpointermove = follow;
      element.onlostpointercapture = () => { element.onpointermove = null; drop(); };
    });
  }

  // Where a pointer is, in units of a drawing.
  const point = (svg, { clientX, clientY }) => new DOMPoint(clientX, clientY).matrixTransform(svg.getScreenCTM().inverse());

  // Pixels of a colour, as opaque as `alpha` says for each row and column.
  function paint(canvas, n, color, alpha) {
    canvas.width = canvas.height = n;
    const pen = canvas.getContext("2d"), image = pen.createImageData(n, n), pixels = new Uint32Array(image.data.buffer);
    for (let at = 0; at < n * n; at += 1) pixels[at] = color + (Math.round(alpha(Math.floor(at / n), at % n)) << 24);
    pen.putImageData(image, 0, 0);
  }

  // A labelled slider; `write` says how its value is read out.
  function slider(controls, name, text, { min, max, value, write = String }, changed) {
    const id = `explorer-${controls.dataset.name}-${name}`;
    const input = make("input", { type: "range", id, name, min, max, value });
    const shown = make("output", { for: id });
    const read = () => Number(input.value), tell = () => { input.ariaValueText = shown.textContent = write(read()); };
    input.addEventListener("input", () => { tell(); changed(); });
    tell();
    read.label = make("label", { for: id }, text);
    controls.append(make("div.control", read.label, input, shown));
    read.to = (number) => { input.value = number; input.dispatchEvent(new Event("input", { bubbles: true })); };
    return read;
  }

  // A slider over steps, which it can play.
  function player(controls, name, { pace = 1400, loops, ...options }, changed) {
    const write = (k) => `${k + 1} of ${options.max + 1}`;
    const read = slider(controls, name, name, { min: 0, write, ...options }, changed), input = controls.lastChild.children[1];
    const button = make("button", "play");
    let timer;
    const stop = () => { timer = clearInterval(timer); button.textContent = "play"; };
    const next = () => (read() < options.max ? read.to(read() + 1) : loops ? read.to(0) : stop());
    button.onclick = () => {
      if (timer) return stop();
      read.to(read() < options.max ? read() + 1 : 0);
      [timer, button.textContent] = [setInterval(next, pace), "pause"];
    };
    input.before(button);
    return Object.assign(read, { play: button.onclick, stop });
  }

  function number(name) {
    const shown = make("output", { "data-name": name });
    shown.set = (value, digits = 4) => {
      shown.dataset.value = value;
      const text = value.toFixed(digits);
      shown.textContent = text.replace("-", Number(text) ? "\u2212" : "");
      return shown;
    };
    return shown;
  }

  function check(controls, name, text, changed) {
    const id = `explorer-${controls.dataset.name}-${name}`, input = make("input", { type: "checkbox", role: "switch", id, name });
    input.addEventListener("input", changed);
    controls.append(make("div.control", input, make("label", { for: id }, text)));
    return () => input.checked;
  }

  // A choice of few, all in sight; each may have a colour of its own.
  function radios(controls, name, texts, changed, first = 0, colors = []) {
    const inputs = texts.map((_, k) => make("input", { type: "radio", name, ...(k === first && { checked: "" }) }));
    for (const input of inputs) input.addEventListener("input", changed);
    controls.append(make("div.choice", { role: "radiogroup", "aria-label": name },
      ...inputs.map((input, k) => make("label", input, make(`span.${colors[k] ?? ""}`, texts[k])))));
    const read = () => inputs.findIndex((input) => input.checked);
    read.to = (k) => inputs[k].click();
    return read;
  }

  // Curves over 0, 1, 2, ..., dots at a cursor, and a shade below the first values of one. `move` is told where the
  // pointer is on both axes, and whether it was just pressed.
  function plot(over, count, move, ...names) {
    const x = (at) => 4 + 2 * at, wide = x(count) + 2, shade = make("path.shade"), cursor = make("path.now");
    const lines = names.map((name) => make(`path.curve ${name}`)), dots = names.map((name) => make(`path.dot ${name}`));
    const svg = make("svg", { viewBox: `0 0 ${wide} 80`, preserveAspectRatio: "none" }, shade, cursor, ...lines, ...dots);
    const high = make("span.high"), low = make("span.low");
    const box = make("div.axes", { "aria-hidden": "true" }, high, low, svg,
      make("div.under", ...[0, over, count - 1].map((text) => make("span", text))));
    let value;
    const follow = (event) => {
      const { x: right, y: down } = point(svg, event);
      move(Math.round(right / 2) - 2, value(down), event.type === "pointerdown");
    };
    drag(svg, () => follow);
    box.draw = (at, from, to, curves, first = 0, one = 0) => {
      value = (down) => from + (to - from) * (78 - down) / 74;
      const y = (value) => (78 - 74 * (value - from) / (to - from)).toFixed(1);
      const path = (values) => `M ${values.map((value, at) => `${x(at)} ${y(value)}`).join(" L ")}`;
      [low.textContent, high.textContent] = [from, to].map((end) => String(end).replace("-", "\u2212"));
      cursor.setAttribute("d", `M ${x(at)} 0 V 80`);
      curves.forEach((values, k) => {
        lines[k].setAttribute("d", path(values));
        dots[k].setAttribute("d", `M ${x(at)} ${y(values[at])} h 0.01`);
      });
      if (first) shade.setAttribute("d", `${path(curves[one].slice(0, first))} V 78 H 4`);
    };
    return box;
  }

  function dial(className, radius = 40) {
    const svg = make("svg", { viewBox: "-50 -50 100 100", class: `dial ${className}` },
      make("circle", { r: radius, class: "rim" }));
    svg.hand = (name, length = radius) => {
      const line = make(`line.hand ${name}`, { x1: 0, y1: 0 });
      const tip = make(`circle.tip ${name}`, { r: 4 });
      svg.append(line, tip);
      return (x, y) => { // y points up, as on paper
        for (const [element, a, b] of [[line, "x2", "y2"], [tip, "cx", "cy"]]) {
          element.setAttribute(a, (length * x).toFixed(2));
          element.setAttribute(b, (-length * y).toFixed(2));
        }
      };
    };
    svg.pull = (grab) => drag(svg, (event) => { // as `drag`, told of angles
      const angle = (event) => { const { x, y } = point(svg, event); return Math.atan2(-y, x); }, follow = grab(angle(event));
      return (event) => follow(angle(event));
    });
    return svg;
  }

  // A dial for each pair: what training showed it, what it never showed, and the way since the token before.
  function dials(count) {
    const TURN = 2 * Math.PI, point = (angle) => `${(40 * Math.sin(angle)).toFixed(2)} ${(-40 * Math.cos(angle)).toFixed(2)}`;
    const sector = (from, to) => `M 0 0 L ${point(from)} A 40 40 0 ${Number(to - from > TURN / 2)} 1 ${point(Math.min(to, from + TURN - 1e-3))} Z`;
    const faces = Array.from({ length: count }, () => {
      const svg = dial("pair"), sectors = ["seen", "red", "since"].map((kind) => make(`path.${kind}`));
      svg.prepend(...sectors);
      return { svg, sectors, move: svg.hand("") };
    });
    const grid = make("div.grid", { role: "img" }, ...faces.map(({ svg }) => svg));
    grid.draw = (j, seen, angle, step, lost) => {
      const { svg, sectors, move } = faces[j];
      svg.classList.toggle("lost", lost);
      [[0, seen], [seen, lost ? Math.min(angle, TURN) : seen], [angle - step, angle]]
        .forEach((ends, k) => sectors[k].setAttribute("d", sector(...ends)));
      move(Math.sin(angle), Math.cos(angle));
    };
    return grid;
  }

  const wrap = (angle) => angle - 2 * Math.PI * Math.round(angle / (2 * Math.PI));
  const frequency = (pair, width, base) => base ** (-2 * pair / width);

  function softmax(scores) {
    const most = Math.max(...scores), powers = scores.map((score) => Math.exp(score - most));
    const total = powers.reduce((sum, power) => sum + power, 0);
    return powers.map((power) => power / total);
  }

  // What moves by itself stops at a touch, and is said aloud only from then on.
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  function shy(live, said, stop) {
    said.ariaLive = "off";
    for (const kind of ["pointerdown", "focusin"]) live.addEventListener(kind, (event) => { stop(event); said.ariaLive = "polite"; });
  }

  const dot = (x, y) => x.reduce((sum, entry, c) => sum + entry * y[c], 0);
  const mean = (weights, rows) => rows[0].map((_, c) => dot(weights, rows.map((row) => row[c])));

  // A line that puts the explorer into another page, in a frame that follows its height; `home` is its own page.
  const root = document.documentElement.dataset.content_root;
  const home = root === undefined ? document.querySelector("h1 a")?.href ?? "" : "";
  const address = (path) => new URL(`${root ?? "../"}${path}`, location);
  function embed(name, title, live) {
    if (root === undefined) return [];
    const line = make("code"), fold = make("details.embed", make("summary", "Embed"), line);
    fold.ontoggle = () => (line.textContent =
      `<iframe src="${address(`embed/${name}.html`)}" title="${title}" width="100%" height="${live.offsetHeight + 40}" style="border:0"></iframe>`
      + "<script>(f=>addEventListener('message',e=>{if(e.source==f.contentWindow)f.height=e.data}))(document.currentScript.previousSibling)<\/script>");
    return [fold];
  }

  function place(title, build) { // wherever a page has a box of the builder's name
    const { name } = build;
    for (const box of document.querySelectorAll(`.explorer-${name}`)) {
      const given = box.querySelector("script"), live = make("div.live", { role: "group", "aria-label": title });
      const controls = make("div.controls", { "data-name": name }), said = make("p.said", { role: "status" });
      const show = () => {
        live.append(...embed(name, title, live));
        box.prepend(live);
        box.classList.add("is-live");
      };
      const later = build(live, given && JSON.parse(given.text), controls, said, box);
      if (later) later.then(show, () => {}); else show(); // what fails leaves the twin
    }
  }

  return { make, drag, point, paint, slider, player, radios, number, check, plot, dial, dials, wrap, frequency, softmax, dot, mean, still, shy, home, address, place };
})();
