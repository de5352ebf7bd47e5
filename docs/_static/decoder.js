// "Ask it yourself": a panel that runs the trained decoders from Start on. It asks as explorers/question.js does.
"use strict";

addEventListener("DOMContentLoaded", () => { // when the explorers are known
  const { ask, best, listed, STORY } = panel;
  const HEADS = 4, MAPS = 8, TRAINED = 48, MOST = 256, FIND = 6;
  const NOUNS = "dog man fox king cat bird boy wolf".split(" "), VERBS = "bites sees hears likes".split(" ");

  const control = (text, input) => `<label class="control">${text} ${input}</label>`;
  const select = (text, name, options) =>
    control(text, `<select name="${name}">${options.map((option) => `<option>${option}</option>`).join("")}</select>`);
  const slider = (text, name, min, max) =>
    control(text, `<input type="range" name="${name}" min="${min}" max="${max}" value="${min}"><output></output>`);
  const buttons = (texts) => `<div class="words">${texts.map((text) => `<button type="button">${text}</button>`).join("")}</div>`;

  // No noun does a thing to two others.
  const FACTS = Array.from({ length: 32 }, (_, n) => {
    const who = (5 * n + (n >> 3)) % 8, whom = ([1, 5, 3, 7][n % 4] * who + 1) % 8;
    return `the ${NOUNS[who]} ${VERBS[n % 4]} the ${NOUNS[whom]} .`;
  });

  const split = (text) => text.toLowerCase().match(/[a-z]+|[^\sa-z]/g) || [];

  function longer(words) {
    const asked = words.lastIndexOf(".") + 1, more = FACTS.filter((fact) => !words.join(" ").includes(fact));
    return [...words.slice(0, asked), ...more.slice(0, 4), ...words.slice(asked)];
  }

  // What a button makes of the words before the cursor and after it. A new text has it before its question mark.
  const asking = (words) => (words.at(-1) === "?" ? [words.slice(0, -1), ["?"]] : [words, []]);
  const EDITS = {
    "take a word back": (before, after) => [before.slice(0, -1), after],
    "add four facts": (before, after) => asking(longer([...before, ...after])),
    "first story": () => asking(split(STORY)),
  };
  const NAMES = Array.from({ length: MAPS }, (_, h) => `layer ${Math.floor(h / HEADS)}, head ${h % HEADS}`);

  const paint = (canvas, map) => panel.paint(canvas, map.length, 0xd08f2b, // blue, and a long row not too faint
    (i, j) => 255 * (map[i][j] || 0) ** (map.length > TRAINED ? 0.5 : 1));

  function build(form, { known }) {
    let words, maps, busy = false, again = false;
    form.innerHTML = '<div class="sides"><div>'
      + control("story and question", '<textarea name="text" rows="4" spellcheck="false"></textarea>')
      + `</div><ol>${'<li><button type="button"></button> <output></output><span class="bar"></span></li>'.repeat(3)}</ol></div>`
      + `<p class="said" role="status"></p>${buttons(Object.keys(EDITS))}<details><summary>all ${known.length} words</summary>${buttons(known)}`
      + '</details><div class="controls">'
      + select("scheme", "scheme", ["rotary", "ALiBi", "none"]) + slider("shift of positions", "shift", 0, 200)
      + control("shift only the question", '<input type="checkbox" role="switch" name="only">')
      + select("extension", "method", ["none", "interpolation", "YaRN"]) + slider("factor", "factor", 1, 8)
      + '</div><div class="answer"><div class="maps">'
      + NAMES.map((name) => `<figure><figcaption>${name}</figcaption><canvas></canvas></figure>`).join("") + '</div><div class="controls">'
      + select("head to read", "head", NAMES) + slider("query to read", "row", 0, 0) + '</div><p class="read"></p><p class="reading"></p>'
      + '<div class="map" aria-hidden="true"><div class="across"></div><div class="down"></div><canvas></canvas></div></div>';
    const { text, scheme, shift, only, method, factor, head, row } = form.elements;
    const [said, answer, list, read, reading, across, down] = ["said", "answer", "sides ol", "read", "reading", "across", "down"]
      .map((name) => form.querySelector(`.${name}`));
    const canvases = [...form.querySelectorAll(".maps canvas")], large = form.querySelector(".map canvas");

    function look(h = head.selectedIndex, at = row.value) {
      [head.selectedIndex, row.value] = [h, at];
      const i = Number(row.value), weights = maps[h][i], most = Math.max(...weights);
      row.nextSibling.textContent = i;
      read.textContent = `${NAMES[h]}: \u201c${words[i]}\u201d at ${i} reads `
        + `${best(weights).map(([j, weight]) => `${words[j]} at ${j} ${weight.toFixed(2)}`).join(", ")}.`;
      reading.innerHTML = words.map((word, j) =>
        `<span class="${j === i ? "from" : ""}" style="--weight: ${100 * (weights[j] || 0) / most}%">${word}</span>`).join(" ");
      form.style.setProperty("--row", `${100 * i / (row.max || 1)}%`);
      canvases.forEach((canvas, other) => canvas.classList.toggle("on", other === h));
      paint(large, maps[h]);
      const step = Math.ceil(words.length * 10 / large.clientWidth); // as many words as there is room for
      across.innerHTML = down.innerHTML = words.map((word, j) => (j % step ? "" :
        `<span class="${j === i ? "from" : ""}" style="--at: ${100 * (j + 0.5) / words.length}%">${word}</span>`)).join("");
    }

    function fault(typed) {
      const unknown = [...new Set(typed.filter((word) => !known.includes(word)))];
      if (unknown.length) return `It does not know ${listed(unknown)}: its ${known.length} words are listed.`;
      if (typed.some((word, i) => /\W/.test(word) && /\W/.test(typed[i - 1] || "."))) return "Write a word before each mark.";
      return typed.length && typed.length <= MOST ? "" : `Write 1 to ${MOST} words.`;
    }

    async function draw() { // one after the other, and what was missed once
      again = busy;
      if (busy) return;
      do {
        [busy, again] = [true, false];
        await once();
        busy = false;
      } while (again);
    }

    async function once() {
      const typed = split(text.value), chosen = scheme.value;
      method.disabled = chosen !== "rotary";
      factor.disabled = method.disabled || method.value === "none";
      for (const input of [shift, factor]) input.nextSibling.textContent = input.value;
      const wrong = fault(typed), asked = typed.lastIndexOf(".") + 1, moved = Number(shift.value);
      for (const part of [answer, list]) part.classList.toggle("old", wrong);
      text.setAttribute("aria-invalid", Boolean(wrong));
      if (wrong) { said.textContent = wrong; return; }
      const places = (by) => typed.map((_, i) => i + (only.checked && i < asked ? 0 : by)), positions = places(moved);
      const answered = (positions) => ask({ scheme: chosen, words: typed, positions, method: method.value, factor: Number(factor.value) });
      let found, before;
      try {
        [found, before] = await Promise.all([answered(positions), moved && answered(places(0))]);
      } catch (error) {
        said.textContent = `No weights: ${error.message}.`;
        return;
      }
      [words, maps] = [typed, found.maps];
      const change = before && Math.max(...maps.map((map, h) => Math.max(...map.map((weights, i) =>
        Math.max(...weights.map((weight, j) => Math.abs(weight - before.maps[h][i][j])))))));
      best(found.probabilities).forEach(([token, probability], k) => {
        const [word, chance, bar] = list.children[k].children;
        [word.textContent, chance.textContent, bar.style.width] = [known[token], probability.toFixed(3), `${100 * probability}%`];
      });
      said.textContent = `Next word: ${list.firstChild.textContent}. ${words.length} word${words.length > 1 ? "s" : ""}, up to ${positions.at(-1) - positions[0]} apart; `
        + `training had up to ${TRAINED} words, up to ${TRAINED - 1} apart.`
        + (moved ? ` The largest change of an attention weight is ${change.toFixed(2)}.` : "");
      canvases.forEach((canvas, h) => paint(canvas, maps[h]));
      form.style.setProperty("--size", `${100 / words.length}%`);
      const end = row.value === row.max;
      row.max = words.length - 1;
      look(head.selectedIndex, end ? row.max : row.value);
      form.found = found;
    }

    function write([before, after]) {
      text.value = [...before, ...after].join(" ");
      const cursor = before.join(" ").length;
      text.setSelectionRange(cursor, cursor);
      draw();
    }

    form.addEventListener("input", ({ target }) => ([head, row].includes(target) ? look() : draw()));
    form.addEventListener("click", ({ target }) => {
      if (target.type !== "button") return;
      if (target.closest("ol")) text.setSelectionRange(1e4, 1e4);
      const [before, after] = [text.value.slice(0, text.selectionStart), text.value.slice(text.selectionEnd)];
      const rest = /[a-z]$/i.test(before) ? after.match(/^[a-z]*/i)[0] : ""; // of a word
      const [left, right] = [split(before + rest), split(after.slice(rest.length))];
      write(EDITS[target.textContent]?.(left, right) || [[...left, target.textContent], right]);
    });
    reading.addEventListener("click", ({ target }) => look(head.selectedIndex, [...reading.children].indexOf(target)));
    for (const canvas of [...canvases, large]) canvas.addEventListener("pointerdown", ({ offsetY }) =>
      look(canvas === large ? head.selectedIndex : canvases.indexOf(canvas), Math.floor(offsetY / canvas.clientHeight * words.length)));
    head.selectedIndex = FIND;
    write(EDITS["first story"]());
    (matchMedia("(pointer: fine)").matches ? text : scheme).focus({ preventScroll: true }); // or a keyboard comes up
  }

  const plain = { scheme: "rotary", words: split(STORY), positions: split(STORY).map((_, i) => i), method: "none", factor: 1 };
  for (const box of document.querySelectorAll(".decoder")) {
    const form = document.createElement("form");
    form.className = "live";
    form.innerHTML = `${buttons(["Start"])}<p class="said" role="status">Start fetches 200 KB of weights.</p>`;
    form.firstChild.addEventListener("click", () => ask(plain).then((answer) => build(form, answer), (error) => {
      form.lastChild.textContent = `No weights: ${error.message}.`;
    }));
    box.append(form);
    box.classList.add("explorer", "is-live");
  }
});
