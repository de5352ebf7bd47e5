/* Search: asks the index that the build made with pagefind, and lists sections, best first. */
const PAGES = 10;
const SECTIONS = 3; // of a page
const form = document.querySelector(".search-again");
const said = document.getElementById("search-said");
const list = document.getElementById("search-results");
const input = form.elements.q;
let asked = 0;

function make(tag, options = {}, ...children) {
  const node = Object.assign(document.createElement(tag), options);
  node.append(...children);
  return node;
}

const weight = (section) => section.weighted_locations.reduce((sum, at) => sum + at.balanced_score, 0);

/* A page: its best section with an excerpt, and links to the next ones. */
function entry({ sub_results: sections, meta }) {
  const [best, ...more] = sections.sort((a, b) => weight(b) - weight(a)).slice(0, SECTIONS);
  const title = best.title || meta.title;
  const heading = make("a", { href: best.url, textContent: title });
  const excerpt = make("p", { innerHTML: best.excerpt }); // escaped by pagefind, but for <mark>
  const item = make("li", {}, heading, excerpt);
  if (title !== meta.title) heading.after(make("span", { textContent: ` in ${meta.title}` }));
  if (more.length) {
    const links = more.map(({ url, title: name }) => make("li", {}, make("a", { href: url, textContent: name })));
    item.append(make("ul", {}, ...links));
  }
  return item;
}

async function search(pagefind) {
  const words = input.value.trim();
  const mine = ++asked;
  const { results } = words ? await pagefind.search(words) : { results: [] };
  const found = await Promise.all(results.slice(0, PAGES).map((result) => result.data()));
  if (mine !== asked) return; // a later question was faster
  list.replaceChildren(...found.map(entry));
  said.textContent = words && (found.length ? `Found on ${results.length} pages.` : `Nothing found for “${words}”.`);
}

async function start() {
  input.value = new URLSearchParams(location.search).get("q") ?? "";
  if (location.protocol === "file:") {
    said.textContent = "Opened from a file, the pages can't be searched: a browser lets no file read another.";
    return;
  }
  const pagefind = await import("../pagefind/pagefind.js");
  await pagefind.options({ ranking: { termSimilarity: 2, pageLength: 0.4, metaWeights: { title: 0.5, asked: 1 } }, excerptLength: 30 });
  await search(pagefind);
  form.addEventListener("submit", (event) => event.preventDefault());
  input.addEventListener("input", () => {
    history.replaceState(null, "", `?q=${encodeURIComponent(input.value)}`);
    search(pagefind);
  });
}

start();
