/* Search: asks the index that the build made with pagefind, and lists sections, best first. */
const PAGES = 10;
const SECTIONS = 3; // of a page
const EXCERPT = 30; // words
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

/* What a section says around most of the words, but for its heading and what stands between ⟦ and ⟧. */
function excerpt({ anchor, title, locations }, { content, anchors }) {
  const words = content.split(/\s+/);
  const start = anchor?.location ?? 0;
  const end = Math.min(words.length, ...anchors.filter((next) => /^h/.test(next.element) && next.location > start).map((next) => next.location));
  let unseen = false;
  const shown = [];
  for (let i = start + title.split(/\s+/).length; i < end; i += 1) {
    unseen ||= words[i].startsWith("⟦");
    if (!unseen) shown.push({ word: words[i], found: locations.includes(i) });
    unseen &&= !words[i].startsWith("⟧");
  }
  const counts = shown.map((_, i) => shown.slice(i, i + EXCERPT).filter(({ found }) => found).length);
  const from = counts.indexOf(Math.max(...counts));
  const fewer = counts.findIndex((count, i) => i > from && count < counts[from]);
  const first = Math.max(0, Math.min(Math.floor((from + fewer) / 2), shown.length - EXCERPT));
  const piece = shown.slice(first, first + EXCERPT).flatMap(({ word, found }) => [found ? make("mark", {}, word) : word, " "]);
  return make("p", {}, ...piece);
}

/* A page: its best section with an excerpt, and links to the next ones. */
function entry(page) {
  const { sub_results: sections, meta } = page;
  const [best, ...others] = sections.sort((a, b) => weight(b) - weight(a));
  const title = best.title || meta.title;
  const more = others.filter((section) => ![title, meta.title].includes(section.title)).slice(0, SECTIONS - 1);
  const heading = make("a", { href: best.url, textContent: title });
  const item = make("li", {}, heading, excerpt(best, page));
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
  await pagefind.options({ ranking: { termSimilarity: 2, pageLength: 0.4, metaWeights: { title: 0.5, asked: 4 } } });
  await search(pagefind);
  form.addEventListener("submit", (event) => event.preventDefault());
  input.addEventListener("input", () => {
    history.replaceState(null, "", `?q=${encodeURIComponent(input.value)}`);
    search(pagefind);
  });
}

start();
