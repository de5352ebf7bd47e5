// What all explorers share: elements, sliders, numbers, and a place on the page. Each explorer takes the place
// of its still twin, and shows numbers that a test compares with the library's: every <output> carries the full
// value in `data-value`.
"use strict";

const panel = (() => {
  const DRAWN = ["svg", "circle", "line", "path", "text", "g", "rect"];

  function make(tag, attributes = {}, ...children) {
    const element = DRAWN.includes(tag)
      ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  // A labelled slider; `write` says how its value is read out.
  function slider(controls, name, text, { min, max, value, write = String }, changed) {
    const id = `explorer-${controls.dataset.name}-${name}`;
    const input = make("input", { type: "range", id, name, min, max, step: 1, value });
    const shown = make("output", { for: id });
    const tell = () => {
      shown.textContent = write(Number(input.value));
      input.setAttribute("aria-valuetext", shown.textContent);
    };
    input.addEventListener("input", () => { tell(); changed(); });
    tell();
    controls.append(make("div", { class: "control" }, make("label", { for: id }, text), input, shown));
    return () => Number(input.value);
  }

  // A slider over steps, which it can play.
  function player(controls, name, options, changed) {
    const read = slider(controls, name, name, { min: 0, ...options }, changed), input = controls.lastChild.children[1];
    const button = make("button", { type: "button" }, "play");
    let timer;
    const stop = () => { timer = clearInterval(timer); button.textContent = "play"; };
    const next = () => (read() < options.max ? read.go(read() + 1) : stop());
    read.go = (step) => { input.value = step; input.dispatchEvent(new Event("input")); };
    button.onclick = () => {
      if (timer) return stop();
      read.go(read() < options.max ? read() + 1 : 0);
      [timer, button.textContent] = [setInterval(next, 1400), "pause"];
    };
    input.before(button);
    return read;
  }

  function number(name) {
    const shown = make("output", { "data-name": name });
    shown.set = (value, digits = 4) => {
      shown.dataset.value = value;
      const text = value.toFixed(digits);
      shown.textContent = Number(text) === 0 ? (0).toFixed(digits) : text.replace("-", "\u2212");
      return shown;
    };
    return shown;
  }

  function check(controls, name, text, changed) {
    const id = `explorer-${controls.dataset.name}-${name}`, input = make("input", { type: "checkbox", role: "switch", id, name });
    input.addEventListener("input", changed);
    controls.append(make("div", { class: "control" }, input, make("label", { for: id }, text)));
    return () => input.checked;
  }

  // A choice of few, which are all in sight.
  function radios(controls, name, texts, changed) {
    const inputs = texts.map((text, k) => make("input", { type: "radio", name, value: k, ...(k ? {} : { checked: "" }) }));
    for (const input of inputs) input.addEventListener("input", changed);
    controls.append(make("div", { class: "choice", role: "radiogroup", "aria-label": name },
      ...inputs.map((input, k) => make("label", {}, input, texts[k]))));
    return () => inputs.findIndex((input) => input.checked);
  }

  // A plot between the values of its axes, which `set` writes: those of the left one from below, then of the lower one.
  function axes(plot) {
    const ends = ["low", "high", "first", "last"].map((name) => make("span", { class: name, "aria-hidden": "true" }));
    const box = make("div", { class: "axes" }, plot, ...ends);
    box.set = (...values) => ends.forEach((end, k) => (end.textContent = String(values[k]).replace("-", "\u2212")));
    return box;
  }

  function dial(className, radius = 40) {
    const svg = make("svg", { viewBox: "-50 -50 100 100", class: `dial ${className}`, "aria-hidden": "true" },
      make("circle", { r: radius, class: "rim" }));
    svg.hand = (name, length = radius) => {
      const line = make("line", { class: `hand ${name}`, x1: 0, y1: 0 });
      const tip = make("circle", { class: `tip ${name}`, r: 4 });
      svg.append(line, tip);
      return (x, y) => { // y points up, as on paper
        for (const [element, a, b] of [[line, "x2", "y2"], [tip, "cx", "cy"]]) {
          element.setAttribute(a, (length * x).toFixed(2));
          element.setAttribute(b, (-length * y).toFixed(2));
        }
      };
    };
    return svg;
  }

  const frequency = (pair, width, base) => base ** (-2 * pair / width);

  function softmax(scores) {
    const most = Math.max(...scores), powers = scores.map((score) => Math.exp(score - most));
    const total = powers.reduce((sum, power) => sum + power, 0);
    return powers.map((power) => power / total);
  }

  const dot = (x, y) => x.reduce((sum, entry, c) => sum + entry * y[c], 0);
  const mean = (weights, rows) => rows[0].map((_, c) => dot(weights, rows.map((row) => row[c])));

  // A line that puts the explorer into another page.
  function embed(name) {
    const root = document.documentElement.dataset.content_root;
    if (root === undefined) return []; // it stands in another page
    const address = new URL(`${root}embed/${name}.html`, location);
    const line = `<iframe src="${address}" title="${name}" width="100%" height="560" style="border:0"></iframe>`;
    return [make("details", { class: "embed" }, make("summary", {}, "Embed"), make("code", {}, line))];
  }

  function place(builders) {
    for (const [name, build] of Object.entries(builders)) {
      for (const box of document.querySelectorAll(`.explorer-${name}`)) {
        const given = box.querySelector("script"), live = make("div", { class: "live", role: "group", "aria-label": `explorer: ${name}` });
        build(live, given && JSON.parse(given.text));
        live.append(...embed(name));
        box.prepend(live);
        box.classList.add("is-live");
      }
    }
  }

  return { make, slider, player, radios, number, check, axes, dial, frequency, softmax, dot, mean, place };
})();
