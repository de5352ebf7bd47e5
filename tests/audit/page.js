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
      late.scrollIntoView();
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
  // The tab sets and the folds that can be tried, each by its number.
  const tries = () => ({
    tabs: tabSets().flatMap(({ set, inputs }, n) => (seen(set) && inputs.length > 1 ? [n] : [])),
    folds: all("summary").flatMap((e, n) => (seen(e) ? [n] : [])),
  });
  const focusTab = (n) => {
    const { inputs } = tabSets()[n];
    (inputs.find((input) => input.checked) ?? inputs[0]).focus();
  };
  const openTab = (n) => tabSets()[n].panels.indexOf(open(tabSets()[n])[0]);
  const nameTab = (n) => name(tabSets()[n].set);
  const focusFold = (n) => all("summary")[n].focus();
  const openFold = (n) => all("summary")[n].parentElement.open;
  const nameFold = (n) => name(all("summary")[n]);

  // Without scripts: what there is to read, and what moves all the same.
  const words = () => {
    const text = all("h1, h2, h3, h4, p, li, pre, table, dt, .katex-display", main());
    const kept = (e) => !e.closest("details:not([open]), .explorer") && e.checkVisibility(); // it has a twin
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

  const policy = () => document.querySelector("meta[http-equiv=Content-Security-Policy]")?.content;

  return { show, overflow, watch, goes, missed, tries, focusTab, openTab, nameTab, focusFold,
    openFold, nameFold, violations, words, works, policy };
})();
