/* What is larger than its place scrolls there; the keyboard has to reach it. */
(() => {
  const NAMES = {
    "katex-display": "Equation",
    "table-wrapper": "Table",
    drawing: "Figure",
    highlight: "Code",
  };
  const mark = () => {
    for (const [kind, name] of Object.entries(NAMES)) {
      for (const box of document.querySelectorAll(`.${kind}`)) {
        const scroller = box.querySelector(":scope > pre") ?? box;
        const wide = scroller.scrollWidth > scroller.clientWidth + 1;
        scroller.classList.toggle("scrolls", wide);
        if (!wide && scroller.scrollHeight <= scroller.clientHeight + 1) {
          for (const key of ["tabindex", "role", "aria-label"]) scroller.removeAttribute(key);
          continue;
        }
        scroller.tabIndex = 0;
        scroller.setAttribute("role", "group");
        scroller.setAttribute("aria-label", `${name}, scrolls`);
      }
    }
  };
  addEventListener("load", mark);
  addEventListener("resize", mark);
  document.addEventListener("change", mark); // a tab was chosen
  document.addEventListener("toggle", mark, true); // something was unfolded
})();
