/* Search: asks the index that the build made with pagefind, and lists sections, best first. */
const PAGES = 10;
const SECTIONS = 3; // of a page
const form = document.querySelector(".search-again");
const said = document.getElementById("search-said");
const list = document.getElementById("search-results");
const input = form.elements.q;
const SMALL = /^(an?|and|at|are|by|can|do|does|for|how|i|in|is|it|its|my|of|on|or|run|set|the|then|to|what|with|posattn|\w*Error:?)$/i;
let asked = 0;

function make(tag, options = {}, ...children) {
  const node = Object.assign(document.createElement(tag), options);
  node.append(...children);
  return node;
}

const weight = (section) => section.weighted_locations.reduce((sum, at) => sum + at.balanced_score, 0);

/* A page: its best section with an excerpt, and links to the next ones. */
function entry(page) {
  const { sub_results: sections, meta } = page;
  const [best = page, ...others] = sections.sort((a, b) => weight(b) - weight(a));
  const title = best.title || meta.title;
  const more = others.filter((section) => ![title, meta.title].includes(section.title)).slice(0, SECTIONS - 1);
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

/* What has all words, or most of them: small words, and then others, are left out until something is found. */
async function find(pagefind, asked) {
  const all = asked.replace(/([a-z])(\d+\.\d)/gi, "$1 $2").split(/\s+/);
  const { results } = await pagefind.search(all.join(" "));
  if (results.length) return { results, left: [] };
  let words = all.filter((word) => !SMALL.test(word));
  if (!words.length) return { results, left: [] };
  const left = all.filter((word) => SMALL.test(word));
  for (;;) {
    const { results } = await pagefind.search(words.join(" "));
    if (results.length || words.length < 2) return { results, left };
    const fewer = words.map((_, i) => words.filter((_, j) => j !== i));
    const counts = await Promise.all(fewer.map(async (some) => (await pagefind.search(some.join(" "))).results.length));
    const alone = await Promise.all(words.map(async (word) => (await pagefind.search(word)).results.length));
    const most = Math.max(...counts);
    const out = most ? counts.indexOf(most) : alone.indexOf(Math.min(...alone));
    left.push(words[out]);
    words = fewer[out];
  }
}

async function search(pagefind) {
  const words = input.value.trim();
  const mine = ++asked;
  const { results, left } = words ? await find(pagefind, words) : { results: [], left: [] };
  const found = await Promise.all(results.slice(0, PAGES).map((result) => result.data()));
  if (mine !== asked) return; // a later question was faster
  list.replaceChildren(...found.map(entry));
  const without = left.length ? ` without “${left.join("”, “")}”` : "";
  said.textContent = words && (found.length ? `Found on ${results.length} pages${without}.` : `Nothing found for “${words}”.`);
}

async function start() {
  input.value = new URLSearchParams(location.search).get("q") ?? "";
  if (location.protocol === "file:") {
    said.textContent = "Opened from a file, the pages can't be searched: a browser lets no file read another.";
    return;
  }
  const pagefind = await import("../pagefind/pagefind.js");
  await pagefind.options({ excerptLength: 30, ranking: { termSimilarity: 2, pageLength: 0.4, metaWeights: { title: 0.3, asked: 4, also: 0.5 } } });
  await search(pagefind);
  form.addEventListener("submit", (event) => event.preventDefault());
  input.addEventListener("input", () => {
    history.replaceState(null, "", `?q=${encodeURIComponent(input.value)}`);
    search(pagefind);
  });
}

start();
