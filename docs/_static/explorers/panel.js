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

  function number(name) {
    const shown = make("output", { "data-name": name });
    shown.set = (value, digits = 4) => {
      shown.dataset.value = value;
      const text = value.toFixed(digits);
      shown.textContent = Number(text) === 0 ? (0).toFixed(digits) : text.replace("-", "\u2212");
    };
    return shown;
  }

  function check(controls, name, text, changed) {
    const id = `explorer-${controls.dataset.name}-${name}`, input = make("input", { type: "checkbox", role: "switch", id, name });
    input.addEventListener("input", changed);
    controls.append(make("div", { class: "control" }, input, make("label", { for: id }, text)));
    return () => input.checked;
  }

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
        if (given) live.append(...embed(name));
        box.prepend(live);
        box.classList.add("is-live");
      }
    }
  }

  return { make, slider, number, check, softmax, dot, mean, place };
})();
