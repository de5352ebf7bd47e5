// What the audit asks of a page in the browser. Every function returns the faults, in words.

window.audit = (() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const seen = (e) => e.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true });
  const main = () => document.querySelector(".slides, [role=main], main") ?? document.body;

  const name = (e) => {
    const kind = [e.localName, ...e.classList].slice(0, 3).join(".") + (e.id ? `#${e.id}` : "");
    const section = e.closest("section[id]")?.id;
    const text = (e.ariaLabel || e.textContent).trim().replace(/\s+/g, " ").slice(0, 40);
    return `${kind}${section ? ` in #${section}` : ""}${text ? ` “${text}”` : ""}`;
  };

  const tabSets = () =>
    all(".sd-tab-set").map((set) => ({
      set,
      inputs: all(":scope > input", set),
      labels: all(":scope > label", set),
      panels: all(":scope > .sd-tab-content", set),
    }));
  const open = ({ panels }) => panels.filter((panel) => getComputedStyle(panel).display !== "none");

  // Tabs: show the panels of one framework. Folds: open them all. The page hears of it, and has
  // two frames to follow. What a page builds when it is in sight has sixty times as many.
  const frames = async () => {
    for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);
  };
  const build = async () => {
    for (const late of all(".explorer")) {
      late.scrollIntoView({ behavior: "instant" });
      for (let wait = 0; wait < 60 && !late.matches(".is-live"); wait++) await frames();
    }
  };
  const show = async (number) => {
    await build();
    const chosen = tabSets().flatMap(({ inputs }) => inputs[number] ?? []);
    for (const input of chosen) input.checked = true;
    for (const input of chosen) input.dispatchEvent(new Event("change", { bubbles: true }));
    for (const fold of all("details")) fold.open = true;
    await frames();
  };

  // How far an element can be seen: "whole", behind a "scroll" bar, or "cut".
  const extent = (e) => {
    let { left, right } = e.getBoundingClientRect();
    let scrolls = null;
    for (let box = e.parentElement; box && box !== document.body; box = box.parentElement) {
      const overflow = getComputedStyle(box).overflowX;
      if (overflow === "visible") continue;
      const edge = box.getBoundingClientRect();
      if (left < edge.left - 1 || right > edge.right + 1) {
        if (overflow !== "auto" && overflow !== "scroll") return { kind: "cut" };
        scrolls ??= box;
      }
      left = Math.max(left, edge.left);
      right = Math.min(right, edge.right);
    }
    if (left < -1 || right > innerWidth + 1) return { kind: "cut" };
    return scrolls ? { kind: "scroll", box: scrolls } : { kind: "whole" };
  };

  // On a phone: figures and tab sets fit, equations fit or scroll in a box that the keyboard
  // reaches, and tables and code fit or scroll.
  const overflow = () => {
    const faults = [];
    const width = document.documentElement.scrollWidth;
    if (width > innerWidth + 1) {
      const cause = all("body *").filter(seen).filter((e) => extent(e).kind === "cut");
      const inner = cause.filter((e) => !cause.includes(e.children[0]));
      faults.push(`the page is ${width} pixels wide: ${inner.slice(0, 3).map(name).join("; ")}`);
    }
    const check = (selector, may, parts) => {
      for (const e of all(selector).filter(seen)) {
        const { kind, box } = parts(e).map(extent).find(({ kind }) => kind !== "whole") ?? {};
        if (kind && !(kind === "scroll" && may(box)))
          faults.push(`${name(e)} ${kind === "cut" ? "is cut" : "scrolls"}`);
      }
    };
    const itself = (e) => [e];
    check("svg.figure, main img, main canvas, .sd-tab-set", () => false, itself);
    check(".katex-display", (box) => box.tabIndex >= 0, (e) => all(".katex-html > .base", e));
    check("table, pre", () => true, itself);
    return faults;
  };

  // What a pointer presses is not covered; a button that shows itself when it is near counts, too.
  const pointer = () => {
    const faults = [];
    for (const e of all("button, summary").filter((e) => e.checkVisibility({ checkVisibilityCSS: true }))) {
      e.scrollIntoView({ block: "center", behavior: "instant" });
      const { x, y, width, height } = e.getBoundingClientRect();
      const hit = document.elementFromPoint(x + width / 2, y + height / 2);
      if (width && hit && !e.contains(hit)) faults.push(`${name(hit)} covers ${name(e)}`);
    }
    return faults;
  };

  // The header of a small screen holds what it shows, and covers no place that a link leads to. Places are of
  // few kinds, and one in the middle of the page stands for its kind.
  const header = async () => {
    const bar = document.querySelector(".mobile-header");
    if (!bar || !seen(bar)) return [];
    document.documentElement.style.scrollBehavior = "auto";
    const edge = () => bar.getBoundingClientRect();
    const out = ({ top, bottom }) => top < edge().top - 1 || bottom > edge().bottom + 1;
    const faults = all("*", bar).filter((e) => seen(e) && out(e.getBoundingClientRect()))
      .map((e) => `${name(e)} sticks out of the header`);
    const ids = new Set(all("a[href^='#']").map((link) => link.hash.slice(1)));
    const kinds = Map.groupBy(
      all("article [id]").filter((e) => ids.has(e.id) && e.checkVisibility()),
      (e) => e.localName + getComputedStyle(e).scrollMarginTop,
    );
    for (const places of kinds.values()) {
      const place = places[places.length >> 1];
      location.replace(`#${place.id}`);
      await frames();
      const { top } = place.getBoundingClientRect();
      if (top < edge().bottom - 1)
        faults.push(`${name(place)} rests at ${Math.round(top)}, below a header of ${Math.round(edge().bottom)}`);
    }
    return faults;
  };

  // Where nothing moves, a drawing keeps its proportions, and a twin its own height. Paper shows nothing that one
  // presses, but for the heads of a table.
  const squeezed = () => {
    const faults = [];
    for (const e of all("svg.figure").filter(seen)) {
      const { width, height } = e.getBoundingClientRect(), box = e.viewBox.baseVal;
      const off = box?.width ? (height * box.width) / (width * box.height) : 1;
      if (Math.abs(off - 1) > 0.02) faults.push(`${name(e)} is ${Math.round(width)} by ${Math.round(height)} pixels`);
    }
    for (const e of all(".explorer").filter(seen)) {
      const range = document.createRange();
      range.selectNodeContents(e);
      const empty = Math.round(e.getBoundingClientRect().bottom - range.getBoundingClientRect().bottom);
      if (empty > 40) faults.push(`${name(e)} ends with ${empty} empty pixels`);
    }
    return faults;
  };
  const paper = () => [
    ...all("button, input, select, textarea").filter((e) => seen(e) && !e.closest("th, .sd-tab-set")).map((e) => `${name(e)} is printed`),
    ...squeezed(),
  ];

  // Two ticks at a time: each count says what is left, and no part of the page is empty without a word.
  const filters = async () => {
    const boxes = all(".filters input"), faults = [];
    const left = (box) => all(`.models li:has(.${box.id})`).filter((e) => e.checkVisibility()).length;
    const count = (box) => Number(box.closest("li").textContent.match(/\d+\s*$/));
    for (const pair of boxes.flatMap((a, n) => boxes.slice(n + 1).map((b) => [a, b]))) {
      for (const box of pair) box.click();
      const names = pair.map(({ labels }) => `“${labels[0].textContent}”`).join(" and ");
      const wrong = boxes.filter((box) => count(box) !== left(box));
      if (wrong.length) faults.push(`${names}: ${name(wrong[0].labels[0])} counts ${count(wrong[0])}, not ${left(wrong[0])}`);
      const empty = all(".models").filter((e) => !e.innerText.trim() && seen(e.previousElementSibling) && e.previousElementSibling.matches("h2"));
      if (empty.length) faults.push(`${names} leave nothing below ${name(empty[0].previousElementSibling)}`);
      for (const box of pair) if (box.checked) box.click();
    }
    return faults;
  };

  // An explorer is as high as the place that is kept for it while its script comes: below 0.04 of a screen.
  const steady = () => all(".explorer.is-live:not(.decoder)").flatMap((e) => {
    const live = e.querySelector(".live");
    for (const fold of all(".embed", e)) fold.open = false;
    const heights = [false, true].map((waits) => {
      live.hidden = waits;
      e.classList.toggle("is-live", !waits);
      return e.offsetHeight;
    });
    live.hidden = !e.classList.toggle("is-live", true);
    const by = heights[0] - heights[1];
    return Math.abs(by) > 36 ? [`${name(e)} grows by ${by} pixels at ${innerWidth}`] : [];
  });

  // The lines that put explorers into other pages, and, in the frame that one makes, whether all is in sight.
  const embeds = async () => {
    for (const open of [false, true]) { // a line knows the height that there was when its fold first opened
      for (const fold of all("details.embed")) fold.open = open;
      await frames();
      if (!open) for (const line of all("details.embed code")) line.textContent = "";
    }
    return all(".embed code").map((line) => line.textContent);
  };
  const whole = async () => {
    const cut = () => document.documentElement.scrollHeight - innerHeight;
    for (let wait = 0; wait < 60 && (cut() > 0 || !document.querySelector(".is-live")); wait++) await frames();
    return cut() > 0 ? [`${document.title} is cut off by ${cut()} at ${innerWidth}`] : [];
  };

  // The keyboard. A look is all that may tell that an element has the focus.
  const LOOK = ["outlineStyle", "outlineWidth", "outlineColor", "boxShadow", "backgroundColor",
    "borderBottomColor", "borderTopColor", "color", "textDecorationLine", "opacity", "transform"];
  const look = (e) =>
    [e, e.parentElement, ...(e.labels ?? [])]
      .map((box) => LOOK.map((property) => getComputedStyle(box)[property]).join())
      .join();
  const looks = new Map();
  const reached = new Set();
  const hints = new Set();
  const watch = async () => {
    await build();
    const still = new CSSStyleSheet();
    still.replaceSync("* { transition: none !important; animation: none !important; }");
    document.adoptedStyleSheets.push(still);
    document.activeElement.blur();
    for (const e of all("a[href], button, input, summary, [tabindex]")) looks.set(e, look(e));
    document.addEventListener("focusin", ({ target }) => {
      reached.add(target);
      if (looks.get(target) === look(target))
        hints.add(`${name(target)} has the focus, and nothing shows it`);
    });
  };
  let before = -1;
  const goes = () => before < (before = reached.size); // whether Tab has met something new
  const missed = () => {
    const tabs = tabSets().filter(({ set }) => seen(set));
    const shut = tabs.filter(({ inputs }) => !inputs.some((input) => reached.has(input)));
    const folds = all("summary").filter((e) => seen(e) && !reached.has(e));
    return [
      ...hints,
      ...all(".explorer:not(.is-live)").map((e) => `${name(e)} never lives`),
      ...[...shut.map(({ set }) => set), ...folds].map((e) => `Tab does not reach ${name(e)}`),
    ];
  };
  // The tab sets and the folds that can be tried, each by its number, and the keys that turn it, one after the other.
  let things, tried, was;
  const tries = () => {
    const sets = tabSets().filter(({ set, inputs }) => seen(set) && inputs.length > 1).map((tabs) => ({
      e: tabs.set, keys: ["ArrowRight", "ArrowLeft"], state: () => tabs.panels.indexOf(open(tabs)[0]),
      at: () => tabs.inputs.find((input) => input.checked) ?? tabs.inputs[0],
    }));
    const folds = all("summary").filter(seen).map((e) => ({
      e, keys: ["Enter", "Space"], state: () => e.parentElement.open, at: () => e,
    }));
    things = [...sets, ...folds];
    return things.map(({ keys }) => keys);
  };
  const focus = (n) => {
    tried = things[n];
    tried.at().focus();
    was = tried.state();
  };
  const turned = (key) => (tried.state() === was ? [`${key} does not turn ${name(tried.e)}`] : []);

  // Without scripts: what there is to read, and what moves all the same.
  const words = () => {
    const text = all("h1, h2, h3, h4, p, li, pre, table, dt, .katex-display", main());
    const kept = (e) => !e.closest("details:not([open]), .explorer") && e.textContent.trim() && e.checkVisibility(); // it has a twin
    return text.filter(kept).length;
  };
  const works = () => {
    const faults = [];
    for (const tabs of tabSets().filter(({ set }) => seen(set))) {
      if (open(tabs).length !== 1)
        faults.push(`${name(tabs.set)} shows ${open(tabs).length} panels`);
      for (const [n, label] of tabs.labels.entries()) {
        label.click();
        if (open(tabs)[0] !== tabs.panels[n]) faults.push(`${name(label)} does not open its panel`);
      }
    }
    for (const fold of all("details").filter(seen)) {
      const before = fold.open;
      fold.querySelector("summary")?.click();
      if (fold.open === before) faults.push(`${name(fold)} does not open`);
    }
    faults.push(...squeezed());
    for (const slide of all(".slides > section")) if (!seen(slide)) faults.push(`${name(slide)} is hidden`);
    return faults;
  };

  // What axe-core finds, once it is there.
  const violations = async () => {
    const rules = { "empty-table-header": { enabled: false } }; // axe reads no MathML, and a head may be a symbol
    const context = { include: [document], exclude: [[".sidebar-toggle"]] }; // furo puts them before all landmarks
    const answer = await axe.run(context, { resultTypes: ["violations"], iframes: false, rules });
    return answer.violations.flatMap(({ id, help, nodes }) =>
      nodes.map((node) => `${help} (${id}): ${node.target} ${node.html.slice(0, 90)}`),
    );
  };

  // A content security policy lets no script in that stands in the page itself, or comes from anywhere.
  const policy = () => {
    const text = document.querySelector("meta[http-equiv=Content-Security-Policy]")?.content;
    if (!text) return ["there is no content security policy"];
    const rules = Object.fromEntries(text.split(";").map((rule) => rule.trim().split(/\s+/)).map(([kind, ...from]) => [kind, from]));
    const scripts = rules["script-src"] ?? rules["default-src"] ?? ["*"];
    const loose = ["*", "'unsafe-inline'", "'unsafe-eval'", "https:", "http:"].filter((source) => scripts.includes(source));
    return loose.map((source) => `the policy lets in scripts from ${source}`);
  };

  return { show, overflow, pointer, header, paper, filters, steady, embeds, whole, watch, goes, missed, tries, focus,
    turned, violations, words, works, policy };
})();
