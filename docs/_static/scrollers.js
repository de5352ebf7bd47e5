/* What is larger than its place scrolls there; the keyboard has to reach it, and it fades where it goes on. */
(() => {
  const NAMES = {
    "katex-display": "Equation",
    "table-wrapper": "Table",
    drawing: "Figure",
    highlight: "Code",
  };
  const names = new Map();
  const fade = ({ target: box }) =>
    box.classList.toggle("goes-on", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
  const mark = ({ box, wide, scrolls }) => {
    box.classList.toggle("scrolls", wide);
    fade({ target: box });
    if (scrolls) {
      box.tabIndex = 0;
      box.setAttribute("role", "group");
      box.setAttribute("aria-label", `${names.get(box)}, scrolls`);
    } else for (const key of ["tabindex", "role", "aria-label"]) box.removeAttribute(key);
  };
  const measure = ({ target: box }) => {
    const wide = box.scrollWidth > box.clientWidth + 1;
    return { box, wide, scrolls: wide || box.scrollHeight > box.clientHeight + 1 };
  };
  // Told of each box when it is first laid out, which far below may be never, and when its size
  // changes; all are measured before one is marked, since a mark makes the browser lay out again.
  // What scrolls has wider cells, so it is measured without the mark.
  const observer = new ResizeObserver((entries) => {
    for (const { target: box } of entries) box.classList.remove("scrolls");
    entries.map(measure).forEach(mark);
  });
  const observe = () => names.forEach((_, box) => { observer.unobserve(box); observer.observe(box); });
  for (const [kind, name] of Object.entries(NAMES))
    for (const box of document.querySelectorAll(`.${kind}`))
      names.set(box.querySelector(":scope > pre") ?? box, name);
  for (const box of names.keys()) box.addEventListener("scroll", fade, { passive: true });
  observe();
  document.fonts.ready.then(observe); // wider letters do not make a box larger
  // A link into a fold opens it.
  const unfold = () => {
    const place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const folds = document.querySelectorAll("article details");
    const closed = [...folds].filter((fold) => !fold.open && (fold.contains(place) || fold.parentElement === place));
    for (const fold of closed) fold.open = true;
    if (closed.length) place.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  unfold();
  // Escape closes the drawers of a small screen.
  addEventListener("keydown", ({ key }) => {
    if (key === "Escape") for (const toggle of document.querySelectorAll(".sidebar-toggle")) toggle.checked = false;
  });
  // The sidebar begins where the reader is.
  const here = document.querySelector(".sidebar-tree .current-page");
  const sidebar = here?.closest(".sidebar-scroll");
  const top = sidebar && here.getBoundingClientRect().top - sidebar.getBoundingClientRect().top - sidebar.clientHeight / 2;
  sidebar?.scrollBy({ top, behavior: "instant" });
})();
