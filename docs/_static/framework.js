// One choice of framework for the whole page, in sight. sphinx-design's tabs sync themselves, remember
// the choice and read it from `?framework=`; the buttons here press these tabs.
const FRAMEWORKS = { torch: "PyTorch", jax: "JAX" };
const BEFORE = [".sidebar-scroll", ".mobile-header .theme-toggle-header"];

document.addEventListener("DOMContentLoaded", () => {
  const tabs = [...document.querySelectorAll(".sd-tab-set > input")].filter(
    (tab) => tab.nextElementSibling.dataset.syncGroup === "framework",
  );
  const framework = (tab) => tab.nextElementSibling.dataset.syncId;
  const chosen = () => tabs.filter((tab) => tab.checked);
  const choose = (tab) => (tab.checked = true);
  const top = (element) => element.getBoundingClientRect().top;
  const offered = Object.keys(FRAMEWORKS).filter((id) => tabs.some((tab) => framework(tab) === id));
  if (offered.length < 2) return;

  // The first thing that begins in sight and stays when tabs change; in a long tab set, the set.
  function inSight() {
    const header = document.querySelector(".mobile-header").offsetHeight;
    const things = [
      ...document.querySelectorAll("article :is(h1, h2, h3, p, li, figure, table, .math, .cell, .sd-tab-set)"),
    ].filter((thing) => thing.offsetParent && !thing.closest(".sd-tab-content"));
    return (
      things.find((thing) => top(thing) >= header && top(thing) < innerHeight) ??
      things.findLast((thing) => top(thing) < header)
    );
  }

  let before = chosen();
  let kept = null; // what must not move, or the tab that was pressed
  document.addEventListener("change", ({ target }) => {
    if (!tabs.includes(target)) return;
    const after = chosen();
    const still = kept ?? target.nextElementSibling;
    before.forEach(choose); // as it was, to see where it stood
    const stood = top(still);
    after.forEach(choose);
    scrollBy({ top: top(still) - stood, behavior: "instant" });
    before = after;
    const address = new URL(location);
    address.searchParams.set("framework", framework(target));
    history.replaceState(history.state, "", address);
    show();
  });

  const buttons = BEFORE.flatMap((place) => {
    const group = document.createElement("div");
    group.className = "framework";
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", "Framework");
    document.querySelector(place)?.before(group);
    return offered.map((id) => {
      const button = document.createElement("button");
      button.type = "button";
      button.value = id;
      button.textContent = FRAMEWORKS[id];
      button.addEventListener("click", () => {
        const tab = tabs.find((tab) => framework(tab) === id && !tab.checked);
        if (!tab) return;
        kept = inSight();
        tab.checked = true;
        tab.dispatchEvent(new Event("change", { bubbles: true }));
        kept = null;
      });
      group.append(button);
      return button;
    });
  });

  // A framework is chosen where every tab set that has it shows it; a third one, such as TensorFlow, leaves it so.
  let lit = null;
  function show() {
    const shown = (all) => offered.find((id) => tabs.filter((tab) => framework(tab) === id)[all]((tab) => tab.checked));
    lit = shown("every") ?? lit ?? shown("some");
    for (const button of buttons) button.setAttribute("aria-pressed", button.value === lit);
  }
  show();
});
