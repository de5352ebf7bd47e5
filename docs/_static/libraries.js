// The table of libraries: a word leaves the rows that have it, a heading sorts by its column.
for (const table of document.querySelectorAll("table.world")) {
  const body = table.tBodies[0];
  const box = document.createElement("div");
  box.className = "find-rows";
  box.innerHTML = '<label>Find <input type="search" placeholder="mlx, NaN, W + 1 keys"></label> <span role="status"></span>';
  const [input, said] = [box.querySelector("input"), box.querySelector("span")];
  const find = () => {
    const word = input.value.trim().toLowerCase();
    const rows = [...body.rows];
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(word);
    said.textContent = word && `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;
  };
  input.addEventListener("input", find);
  table.parentElement.before(box);
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    button.title = "Sort by this column";
    head.replaceChildren(button);
    const text = (row) => row.cells[column].textContent;
    button.addEventListener("click", () => {
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", "ascending");
      body.append(...[...body.rows].sort((a, b) => !text(a) - !text(b) || text(a).localeCompare(text(b))));
    });
  });
}
