// The cards of models: counts follow the ticks, a tick that would leave no card is off, and each year says what is left.
for (const list of document.querySelectorAll(".filters")) {
  const boxes = [...list.querySelectorAll("input")];
  const told = () => Object.assign(document.createElement("p"), { className: "fits" });
  const all = told();
  all.role = "status";
  list.after(all);
  const years = [...document.querySelectorAll(".models:has(li)")].map((cell) => {
    const said = told();
    cell.before(said);
    return { said, cards: [...cell.querySelectorAll("li")] };
  });
  const cards = years.flatMap((year) => year.cards);
  const has = (card, box) => card.querySelector(`.${box.id}`);
  const follow = () => {
    const ticked = boxes.filter((box) => box.checked);
    const left = (some) => some.filter((card) => ticked.every((box) => has(card, box)));
    const tell = (said, some) => (said.textContent = ticked.length ? `${left(some).length || "None"} of ${some.length} models` : "");
    tell(all, cards);
    for (const year of years) tell(year.said, year.cards);
    for (const box of boxes) {
      const found = left(cards).filter((card) => has(card, box)).length, row = box.parentElement;
      box.disabled = !found && !box.checked;
      row.querySelector(".share").style.setProperty("--all", `${(100 * found) / cards.length}%`);
      row.lastChild.textContent = ` ${found}`;
    }
  };
  list.addEventListener("change", follow);
  follow(); // a browser may remember ticks
}
