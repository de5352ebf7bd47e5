// What a config.json does with positions. A worker runs posattn's own plan, from the first use on.
"use strict";

panel.place("The config scope", function scope(live, { models }, controls, said) {
  const { make, slider, check, dials, address } = panel, TURN = 2 * Math.PI, folder = address("_static/scope/");
  const MOST = 1e7, SHORT = 6e3, STEPS = 8; // bytes of a file, letters of it in an address, steps for each doubling
  const written = (n) => n.toLocaleString("en"), size = (k, trained) => Math.round(trained * 2 ** (k / STEPS));
  let text, found, grid, worker, waiting, model = "";

  // --- What is asked for.
  const pick = make("select", { "aria-label": "a released model" }, make("option", { value: "" }, "or a released model \u2026"),
    ...models.map(([file, name]) => make("option", { value: file }, name)));
  const file = make("input", { type: "file", accept: ".json", "aria-label": "Choose a config.json" });
  const area = make("textarea", { rows: 2, spellcheck: "false", "aria-label": "config.json", placeholder: "Drop a config.json anywhere, or paste it here" });
  const strip = make("div.strip", { "aria-hidden": "true" }), says = make("p.says"), dialled = make("div");
  const lines = make("pre"), copy = make("button", { type: "button" }, "copy"), add = make("div.add", make("p"), lines, copy);
  const facts = make("dl"), whole = make("pre.plan"), shown = make("div.shown", { hidden: "" }, strip, controls, says, dialled, add, facts,
    make("details", make("summary", "The whole plan, as the command prints it"), whole));

  // --- The engine answers one question at a time, and of those that wait the last.
  function ask() {
    const n = size(length(), trained()), stretched = kind()?.method === "longrope" || kind()?.method === "dynamic";
    const question = [text, stretched ? n : 0, yarn() && !switched().disabled ? factor() : 0];
    if (waiting) { waiting = question; return; }
    if (!worker) {
      worker = new Worker(new URL("worker.js", folder));
      worker.onmessage = ({ data }) => { const next = waiting; waiting = null; if (Array.isArray(next)) send(next); else take(data); };
      worker.onerror = (event) => { event.preventDefault(); [worker, waiting] = []; fault("The engine stopped. Please report this file."); };
    }
    send(question);
  }
  const send = (question) => { waiting = true; worker.postMessage(question); };

  function fault(words) {
    said.textContent = words;
    live.classList.add("fault");
    shown.hidden = true;
    found = null;
  }

  function read(words, name = "") {
    [text, model, found] = [words, name, null];
    pick.value = name;
    said.textContent = "Reading \u2026";
    ask();
  }

  async function open(given) {
    if (!given) return;
    if (given.size > MOST) fault(`${given.name} has ${written(given.size)} bytes: a config.json is smaller. The command reads .gguf files, too.`);
    else read(await given.text());
  }

  async function choose(name) {
    const answer = name && await fetch(new URL(`${name}.json`, folder)).catch(() => {});
    if (answer?.ok) read(await answer.text(), name);
    else if (name) fault(`There is no model ${name} here.`);
  }

  // --- What is shown.
  const kind = () => found?.kinds[found.layers[layer()]];
  const trained = () => kind()?.trained || 4096;
  const factor = () => Math.max(2, Math.ceil(size(length(), trained()) / trained()));

  function take(answer) {
    if (answer.error) { fault(answer.error); return; }
    const fresh = !found;
    found = answer;
    live.classList.remove("fault");
    shown.hidden = false;
    whole.textContent = found.text;
    if (fresh) {
      const last = found.layers.length - 1, input = live.querySelector("[name=layer]");
      input.max = last;
      layer.to(Math.min(state.layer ?? Math.max(0, found.strip.search(/[FWS]/)), last));
      draw();
    }
    [lines.textContent, add.hidden] = [found.lines, !found.lines];
    add.firstChild.textContent = `Put this into the file${found.text.startsWith("gemma") ? "" : ""}, instead of the key that it has:`;
    const rows = [["Left to the class", found.class.length && `${found.class[1]} (${found.class[0]})`],
      ["Not read by attention", found.unread.join(", ")], ["Read by nobody", found.dead.join(", ")]].filter(([, what]) => what);
    facts.replaceChildren(...rows.flatMap(([name, what]) => [make("dt", name), make("dd", what)]));
    look();
  }

  function draw() { // a block for each layer, and a gap where the pattern starts again, as on the models' pages
    const letters = found.strip, again = [2, 3, 4, 5, 6, 7, 8].find((p) => letters.slice(p) === letters.slice(0, -p)) ?? 10;
    const group = new Set(letters).size === 1 ? 10 : again * Math.max(1, Math.floor(8 / again));
    strip.replaceChildren(...[...letters].flatMap((letter, n) => [...(n && n % group === 0 ? [" "] : []),
      make(`span.layer layer-${letter === "-" ? "x" : letter.toLowerCase()}`, { "data-layer": n }, letter)]));
  }

  function look() {
    if (!found) return;
    const { says: words, plain = [], now = [], window, method } = kind(), n = size(length(), trained());
    strip.querySelector(".now")?.classList.remove("now");
    strip.querySelector(`[data-layer="${layer()}"]`).classList.add("now");
    says.textContent = `${words[0].toUpperCase()}${words.slice(1)}.`;
    switched().disabled = !plain.length || !kind().trained || (method !== "default" && !found.lines);
    const seen = plain.map((w) => kind().trained ? Math.min(trained() * w, TURN) : TURN), reach = Math.min(n, window ?? n);
    const lost = plain.map((w, j) => seen[j] < TURN && reach * Math.abs(now[j]) > seen[j] * (1 + 1e-9));
    const count = lost.filter(Boolean).length, first = Math.min(...seen.map((angle, j) => lost[j] ? angle / Math.abs(now[j]) : Infinity));
    if (grid?.children.length !== plain.length) dialled.replaceChildren(grid = dials(plain.length));
    plain.forEach((_, j) => grid.draw(j, seen[j], reach * Math.abs(now[j]), Math.abs(now[j]), lost[j]));
    grid.ariaLabel = `${plain.length} dials, ${count} of them red`;
    said.classList.toggle("any", count > 0);
    said.textContent = verdict(plain.length, count, n, window, Math.floor(first + 1e-6));
    keep();
  }

  function verdict(pairs, count, n, window, first) {
    const head = `${found.text.split("\n", 1)[0].replace(" from 0 on", "")}. `;
    if (!pairs) return `${head}Nothing rotates in this layer.`;
    if (!kind().trained) return `${head}The file names no length, so no pair turns red.`;
    if (count) return `${head}At ${written(n)} tokens, ${count} of ${pairs} pairs are new, the first from ${written(first)} on.`;
    if (window < n) return `${head}This layer looks back ${written(window)} positions at most: nothing is new at ${written(n)} tokens.`;
    return `${head}At ${written(n)} tokens, none of the ${pairs} pairs is new.`;
  }

  // --- The address holds the view, and what follows # never leaves the browser.
  const pass = async (data, way) => new Response(new Blob([data]).stream().pipeThrough(way));
  async function keep() {
    const part = new URLSearchParams({ layer: layer(), length: length(), ...(yarn() && { yarn: 1 }) });
    if (!model) {
      const packed = new Uint8Array(await (await pass(text, new CompressionStream("deflate-raw"))).arrayBuffer());
      if (packed.length < SHORT) part.set("config", btoa(String.fromCharCode(...packed)));
    }
    history.replaceState(null, "", `${location.pathname}${model && `?model=${model}`}#${part}`);
  }
  const state = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

  const layer = slider(controls, "layer", "layer", { min: 0, max: 1, value: 0 }, look);
  const length = slider(controls, "length", "length of your text", { min: -40, max: 48, value: state.length ?? 0,
    write: (k) => `${written(size(k, trained()))}` }, () => {
    look();
    if (found && (yarn() || ["longrope", "dynamic"].includes(kind().method))) ask();
  });
  const yarn = check(controls, "yarn", "try YaRN", ask), switched = () => controls.querySelector("[name=yarn]");
  switched().checked = state.yarn;
  strip.addEventListener("click", ({ target }) => target.dataset.layer && layer.to(target.dataset.layer));
  copy.addEventListener("click", () => navigator.clipboard.writeText(lines.textContent).then(() => { copy.textContent = "copied"; }));
  pick.addEventListener("change", () => choose(pick.value));
  file.addEventListener("change", () => open(file.files[0]));
  area.addEventListener("input", () => { if (area.value.trim()) read(area.value); });
  for (const kind of ["dragover", "drop"]) document.addEventListener(kind, (event) => {
    event.preventDefault();
    live.classList.toggle("over", kind === "dragover");
    if (kind === "drop") open(event.dataTransfer.files[0]);
  });
  document.addEventListener("dragleave", () => live.classList.remove("over"));

  live.append(make("div.given", area, file, pick), said, shown);
  said.textContent = "The file stays in your browser.";
  const asked = new URLSearchParams(location.search).get("model");
  if (asked) choose(asked);
  else if (state.config) pass(Uint8Array.from(atob(state.config), (letter) => letter.charCodeAt(0)), new DecompressionStream("deflate-raw"))
    .then((answer) => answer.text()).then((words) => read(words), () => fault("The address holds no whole file."));
});
