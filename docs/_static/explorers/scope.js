// What a config.json does with positions: a worker runs posattn's own plan, from the first use on.
"use strict";

panel.place("The config scope", function scope(live, { models }, controls, said) {
  const { make, slider, check, dials, address } = panel, TURN = 2 * Math.PI, folder = address("_static/scope/");
  const written = (n) => n.toLocaleString("en"), size = () => round(length()), round = (k) => Math.round(trained() * 2 ** (k / 8));
  let text, found, grid, worker, waiting, model;

  const control = (...parts) => make("div.control", ...parts);
  const pick = make("select", { "aria-label": "a released model" }, make("option", { value: "" }, "or choose a released model"),
    ...models.map(([file, name]) => make("option", { value: file }, name)));
  const file = make("input", { type: "file", accept: ".json", "aria-label": "a config.json" });
  const area = make("textarea", { rows: 3, spellcheck: "false", "aria-label": "its text", placeholder: "Drop your config.json here, or paste its text" });
  const head = make("p.head"), strip = make("div.strip", { "aria-hidden": "true" }), says = make("p"), dialled = make("div"), end = make("small");
  const which = make("div.controls", { "data-name": "scope" }), facts = make("dl"), whole = make("pre"), lines = make("pre");
  const copy = make("button", { type: "button" }, "copy"), add = make("div.add", control("In the file, the key of this name becomes", copy), lines);

  // The engine answers one question at a time, and of those that wait the last.
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
      worker.onerror = () => { [worker, waiting] = []; fault("The engine stopped: please report this file."); };
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
    if (given?.size > 1e7) fault("This is no config.json; the command reads .gguf files, too.");
    else if (given) read(await given.text());
  }

  async function choose(name) {
    const answer = name && await fetch(new URL(`${name}.json`, folder));
    if (answer?.ok) read(await answer.text(), name);
    else if (name) fault(`There is no model ${name} here.`);
  }

  const kind = () => found?.kinds[found.layers[layer()]];
  const trained = () => kind()?.trained || 4096;
  const factor = () => Math.max(2, Math.ceil(size() / trained()));

  function take(answer) {
    const fresh = !found, input = which.querySelector("input");
    if (answer.error) { if (fresh) fault(answer.error); else said.textContent = answer.error; return; }
    found = answer;
    live.classList.add("read");
    [whole.textContent, lines.textContent, add.hidden, copy.textContent] = [found.text, found.lines, !found.lines, "copy"];
    if (!fresh) { look(); return; }
    strip.replaceChildren(...[...found.strip].flatMap((letter, n) => [n % found.group ? "" : " ",
      make(`span.layer layer-${letter === "-" ? "x" : letter.toLowerCase()}`, letter)]));
    input.max = found.layers.length - 1;
    head.replaceChildren(make("strong", found.text.slice(0, found.text.indexOf(","))), ` ${found.layers.length} layers`);
    layer.to(Math.min(state.layer ?? Math.max(0, found.strip.search(/[FS]/)), input.max));
    delete state.layer;
    keep();
  }

  function look() {
    if (!found) return;
    const { says: words, plain = [], now = [], window, method } = kind(), n = size(), known = kind().trained;
    strip.querySelector(".now")?.classList.remove("now");
    strip.children[layer()].classList.add("now");
    says.textContent = `${words[0].toUpperCase()}${words.slice(1)}.`;
    switched.disabled = !plain.length || !known || (method !== "default" && !found.lines);
    const seen = plain.map((w) => known ? Math.min(known * w, TURN) : TURN), reach = Math.min(n, window ?? n), speed = now.map(Math.abs);
    const lost = seen.map((angle, j) => angle < TURN && reach * speed[j] > angle * 1.000001), count = lost.filter(Boolean).length;
    const first = Math.floor(Math.min(...seen.map((angle, j) => (lost[j] ? angle / speed[j] : Infinity))) + 1e-6);
    if (grid?.children.length !== plain.length) dialled.replaceChildren(grid = dials(plain.length));
    seen.forEach((angle, j) => grid.draw(j, angle, reach * speed[j], speed[j], lost[j]));
    grid.ariaLabel = `${plain.length} dials, ${count} of them red`;
    end.textContent = `pair ${plain.length - 1}`;
    live.classList.toggle("still", !plain.length);
    said.classList.toggle("any", count > 0);
    said.textContent = verdict(plain.length, count, written(n), window && window < n, first);
    facts.replaceChildren(...kind().facts.flatMap(([name, what]) => [make("dt", name), make("dd", what)]));
  }

  function verdict(pairs, count, n, near, first) {
    if (!pairs) return "Nothing rotates in this layer.";
    if (!kind().trained) return "Nothing names a trained length, so no dial turns red.";
    if (count) return `At ${n} tokens, ${count} of ${pairs} pairs are new, from ${written(first)} on.`;
    return near ? `This layer looks back ${written(kind().window)} positions at most, so no pair is new at ${n} tokens.`
      : `At ${n} tokens, none of the ${pairs} pairs is new.`;
  }

  // The address holds the view, and what follows # never leaves the browser.
  const pass = async (data, way) => new Response(new Blob([data]).stream().pipeThrough(way));
  async function keep() {
    if (!found) return;
    const part = new URLSearchParams({ layer: layer(), length: length(), ...(yarn() && { yarn: 1 }) });
    if (!model) {
      const packed = new Uint8Array(await (await pass(text, new CompressionStream("deflate-raw"))).arrayBuffer());
      if (packed.length < 6e3) part.set("config", btoa(String.fromCharCode(...packed)));
    }
    history.replaceState(null, "", `${location.pathname}${model && `?model=${model}`}#${part}`);
  }
  const state = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

  const moves = () => yarn() || ["longrope", "dynamic"].includes(kind().method);
  const layer = slider(which, "layer", "layer", { min: 0, max: 0, value: 0 }, () => found && length.to(length()));
  const length = slider(controls, "length", "length of your text", { min: -40, max: 48, value: state.length ?? 0,
    write: (k) => written(round(k)) }, () => { look(); if (found && moves()) ask(); });
  const yarn = check(controls, "yarn", "try YaRN", () => text && ask()), switched = controls.querySelector("[name=yarn]");
  switched.checked = state.yarn;
  strip.onclick = ({ target }) => target !== strip && layer.to([...strip.children].indexOf(target));
  copy.onclick = () => navigator.clipboard.writeText(lines.textContent).then(() => { copy.textContent = "copied"; });
  pick.onchange = () => choose(pick.value);
  file.onchange = () => open(file.files[0]);
  area.oninput = () => { if (area.value.trim()) read(area.value); };
  live.addEventListener("change", keep);
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
    .then((answer) => answer.text()).then(read, () => fault("The address holds no file."));
});
