// What a config.json does with positions: a worker runs posattn's own plan, from the first use on.
"use strict";

panel.place("The config scope", function scope(live, { models }, controls, said) {
  const { make, slider, check, dials, address } = panel, TURN = 2 * Math.PI, folder = address("_static/scope/");
  const written = (n) => n.toLocaleString("en"), size = () => round(length()), round = (k) => Math.round(trained() * 2 ** (k / 8));
  let text, found, grid, worker, waiting, model;

  // --- What is given, and what is shown.
  const control = (...parts) => make("div.control", ...parts);
  const pick = make("select", { "aria-label": "a released model" }, make("option", { value: "" }, "or choose a released model"),
    ...models.map(([file, name]) => make("option", { value: file }, name)));
  const file = make("input", { type: "file", accept: ".json", "aria-label": "a config.json" });
  const area = make("textarea", { rows: 3, spellcheck: "false", "aria-label": "the text of a config.json", placeholder: "Drop your config.json here, or paste its text" });
  const head = make("p.head"), strip = make("div.strip", { "aria-hidden": "true" }), says = make("p"), dialled = make("div"), end = make("small");
  const which = make("div.controls", { "data-name": "scope" }), facts = make("dl"), whole = make("pre"), lines = make("pre");
  const copy = make("button", { type: "button" }, "copy"), add = make("div.add", control("In the file, the key of this name becomes", copy), lines);

  // --- The engine answers one question at a time, and of those that wait the last.
  function ask() {
    const question = [text, found && moves() && !yarn() ? size() : 0, yarn() ? factor() : 0];
    if (waiting) { waiting = question; return; }
    if (!worker) {
      worker = new Worker(new URL("worker.js", folder));
      worker.onmessage = ({ data }) => {
        const next = waiting;
        waiting = null;
        if (next.length) send(next); else take(data);
      };
      worker.onerror = (event) => { event.preventDefault(); [worker, waiting] = []; fault("The engine stopped: please report this file."); };
    }
    send(question);
  }
  const send = (question) => { waiting = true; worker.postMessage(question); };

  function fault(words) {
    [said.textContent, found] = [words, null];
    live.classList.remove("read");
  }

  function read(words, name = "") {
    if (text) switched.checked = false;
    [text, model, found, pick.value] = [words, name, null, name];
    said.textContent = "Reading \u2026";
    ask();
  }

  async function open(given) {
    if (given?.size > 1e7) fault(`${given.name} is too large for a config.json. The command reads .gguf files, too.`);
    else if (given) read(await given.text());
  }

  async function choose(name) {
    const answer = name && await fetch(new URL(`${name}.json`, folder));
    if (answer?.ok) read(await answer.text(), name);
    else if (name) fault(`There is no model ${name} here.`);
  }

  // --- What is shown.
  const kind = () => found?.kinds[found.layers[layer()]];
  const trained = () => kind()?.trained || 4096;
  const factor = () => Math.max(2, Math.ceil(size() / trained()));

  function take(answer) {
    if (answer.error) { fault(answer.error); return; }
    const fresh = !found, input = which.querySelector("input");
    found = answer;
    live.classList.add("read");
    [whole.textContent, lines.textContent, add.hidden, copy.textContent] = [found.text, found.lines, !found.lines, "copy"];
    if (!fresh) { look(); return; }
    draw();
    input.max = found.layers.length - 1;
    head.replaceChildren(make("strong", found.text.slice(0, found.text.indexOf(","))), ` ${found.layers.length} layers`);
    layer.to(Math.min(state.layer ?? Math.max(0, found.strip.search(/[FS]/)), input.max));
    delete state.layer;
  }

  function draw() { // a block for each layer, and a gap where the pattern starts again, as on the models' pages
    const letters = found.strip, again = [2, 3, 4, 5, 6, 7, 8].find((p) => letters.slice(p) === letters.slice(0, -p)) ?? 10;
    const group = new Set(letters).size === 1 ? 10 : again * Math.max(1, Math.floor(8 / again));
    strip.replaceChildren(...[...letters].flatMap((letter, n) => [n % group ? "" : " ",
      make(`span.layer layer-${letter === "-" ? "x" : letter.toLowerCase()}`, letter)]));
  }

  function look() {
    if (!found) return;
    const { says: words, plain = [], now = [], window, method } = kind(), n = size(), known = kind().trained;
    strip.querySelector(".now")?.classList.remove("now");
    strip.children[layer()].classList.add("now");
    says.textContent = `${words[0].toUpperCase()}${words.slice(1)}.`;
    switched.disabled = !plain.length || !known || (method !== "default" && !found.lines);
    const seen = plain.map((w) => known ? Math.min(known * w, TURN) : TURN), reach = Math.min(n, window ?? n), speed = now.map(Math.abs);
    const lost = seen.map((angle, j) => angle < TURN && reach * speed[j] > angle * (1 + 1e-9)), count = lost.filter(Boolean).length;
    const first = Math.floor(Math.min(...seen.map((angle, j) => (lost[j] ? angle / speed[j] : Infinity))) + 1e-6);
    if (grid?.children.length !== plain.length) dialled.replaceChildren(grid = dials(plain.length));
    seen.forEach((angle, j) => grid.draw(j, angle, reach * speed[j], speed[j], lost[j]));
    grid.ariaLabel = `${plain.length} dials, ${count} of them red`;
    end.textContent = `pair ${plain.length - 1}`;
    live.classList.toggle("still", !plain.length);
    said.classList.toggle("any", count > 0);
    said.textContent = verdict(plain.length, count, written(n), window && window < n, first);
    const rows = [["Trained length", known && `${written(known)}, ${known === found.trained ? found.from : "the original length"}`],
      ["Left to the class", found.class.length && `${found.class[1]} (${found.class[0]})`],
      ["Not read by attention", found.unread.join(", ")], ["Read by nobody", found.dead.join(", ")]];
    facts.replaceChildren(...rows.flatMap(([name, what]) => (what ? [make("dt", name), make("dd", what)] : [])));
    keep();
  }

  function verdict(pairs, count, n, near, first) {
    if (!pairs) return "Nothing rotates in this layer.";
    if (!kind().trained) return "Nothing names a trained length, so no dial turns red.";
    if (count) return `At ${n} tokens, ${count} of ${pairs} pairs are new, from ${written(first)} on.`;
    return near ? `This layer looks back ${written(kind().window)} positions at most, so no pair is new at ${n} tokens.`
      : `At ${n} tokens, none of the ${pairs} pairs is new.`;
  }

  // --- The address holds the view, and what follows # never leaves the browser.
  const pass = async (data, way) => new Response(new Blob([data]).stream().pipeThrough(way));
  async function keep() {
    const part = new URLSearchParams({ layer: layer(), length: length(), ...(yarn() && { yarn: 1 }) });
    if (!model) {
      const packed = new Uint8Array(await (await pass(text, new CompressionStream("deflate-raw"))).arrayBuffer());
      if (packed.length < 6e3) part.set("config", btoa(String.fromCharCode(...packed)));
    }
    history.replaceState(null, "", `${location.pathname}${model && `?model=${model}`}#${part}`);
  }
  const state = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

  const moves = () => yarn() || ["longrope", "dynamic"].includes(kind().method); // with the length
  const layer = slider(which, "layer", "layer", { min: 0, max: 0, value: 0 }, () => found && length.to(length()));
  const length = slider(controls, "length", "length of your text", { min: -40, max: 48, value: state.length ?? 0,
    write: (k) => written(round(k)) }, () => { look(); if (found && moves()) ask(); });
  const yarn = check(controls, "yarn", "try YaRN", () => text && ask()), switched = controls.querySelector("[name=yarn]");
  switched.checked = state.yarn;
  strip.addEventListener("click", ({ target }) => target !== strip && layer.to([...strip.children].indexOf(target)));
  copy.addEventListener("click", () => navigator.clipboard.writeText(lines.textContent).then(() => { copy.textContent = "copied"; }));
  pick.addEventListener("change", () => choose(pick.value));
  file.addEventListener("change", () => open(file.files[0]));
  area.addEventListener("input", () => { if (area.value.trim()) read(area.value); });
  for (const what of ["dragover", "dragleave", "drop"]) document.addEventListener(what, (event) => {
    event.preventDefault();
    live.classList.toggle("over", what === "dragover");
    if (what === "drop") open(event.dataTransfer.files[0]);
  });

  live.append(make("div.given", control(area), control(file), control(pick)), head, strip, which, says, controls, said, dialled,
    make("p.ends", make("small", "pair 0, the fastest"), make("small", "shaded: seen in training; red: never seen"), end),
    add, facts, make("details", make("summary", "All that the command prints"), whole));
  said.textContent = "The file stays in your browser.";
  const asked = new URLSearchParams(location.search).get("model");
  if (asked) choose(asked);
  else if (state.config) pass(Uint8Array.from(atob(state.config), (letter) => letter.charCodeAt(0)), new DecompressionStream("deflate-raw"))
    .then((answer) => answer.text()).then(read, () => fault("The address holds no whole file."));
});
