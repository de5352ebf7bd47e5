/* Search: asks the index that the build made with pagefind, and lists sections, best first. */
const PAGES = 10;
const SECTIONS = 3; // of a page
const COUNT = 130; // of pages, about
const FEW = 5; // pages that make a word rare
const ENOUGH = 16; // a score that counts half
const form = document.querySelector(".search-again");
const said = document.getElementById("search-said");
const list = document.getElementById("search-results");
const input = form.elements.q;
const SMALL = /^(an?|and|at|are|by|can|do|does|for|how|i|in|is|it|its|my|of|on|or|run|set|the|then|to|versus|vs|what|which|with|posattn|\w*Error:?)$/i;
let asked = 0;

function make(tag, options = {}, ...children) {
  const node = Object.assign(document.createElement(tag), options);
  node.append(...children);
  return node;
}

const weight = (section) => (section.weighted_locations ?? []).reduce((sum, at) => sum + at.balanced_score, 0);

/* A page: its best section with an excerpt, and links to the next ones. */
function entry({ meta, sections }) {
  const [best, ...others] = sections;
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

/* Pages by the words that they have: a rare word counts more than a common one, and having all counts most. Of "Gemma 3", "gemma-3" is a word too. */
async function find(pagefind, asked) {
  const all = asked.toLowerCase().replace(/([a-z])(\d+\.\d)/g, "$1 $2").split(/[\s(){}'",;:?!/]+/).filter(Boolean);
  const large = (word) => word && !SMALL.test(word);
  const names = all.map((word, at) => large(all[at - 1]) && large(word) && /^([a-z]|v?\d[.\d]*)$/.test(word) && `${all[at - 1]}-${word}`);
  const words = [...new Set([...all, ...names].filter(large))];
  const answers = await Promise.all((words.length ? words : all).map((word) => pagefind.search(word)));
  const pages = new Map();
  for (const { results } of answers) {
    const rare = Math.log(1 + COUNT / Math.max(results.length, FEW)) ** 1.5;
    for (const result of results) {
      const page = pages.get(result.id) ?? { score: 0, has: 0, hits: [] };
      const value = (rare * result.score) / (result.score + ENOUGH);
      page.score += value;
      page.has += rare;
      page.hits.push([value, result]);
      pages.set(result.id, page);
    }
  }
  return [...pages.values()].sort((a, b) => b.score * b.has - a.score * a.has);
}

/* What a page says of all words: its sections, best first. */
async function told({ hits }) {
  const sections = new Map();
  let meta;
  for (const [value, result] of hits.sort(([a], [b]) => b - a)) {
    const page = await result.data();
    meta = page.meta;
    const whole = page.sub_results.reduce((sum, part) => sum + weight(part), 0) || 1;
    for (const part of page.sub_results.length ? page.sub_results : [page]) {
      const known = sections.get(part.url) ?? { ...part, value: 0 };
      known.value += (value * weight(part)) / whole;
      sections.set(part.url, known);
    }
  }
  return { meta, sections: [...sections.values()].sort((a, b) => b.value - a.value) };
}

async function search(pagefind) {
  const words = input.value.trim();
  const mine = ++asked;
  const pages = words ? await find(pagefind, words) : [];
  const found = await Promise.all(pages.slice(0, PAGES).map(told));
  if (mine !== asked) return; // a later question was faster
  list.replaceChildren(...found.map(entry));
  said.textContent = words && (found.length ? `Found on ${pages.length} pages.` : `Nothing found for “${words}”.`);
}

async function start() {
  input.value = new URLSearchParams(location.search).get("q") ?? "";
  if (location.protocol === "file:") {
    said.textContent = "Opened from a file, the pages can't be searched: a browser lets no file read another.";
    return;
  }
  const pagefind = await import("../pagefind/pagefind.js");
  await pagefind.options({ excerptLength: 30, ranking: { termSimilarity: 2, pageLength: 0.4, metaWeights: { title: 0.3, asked: 4, also: 1.2 } } });
  await search(pagefind);
  form.addEventListener("submit", (event) => event.preventDefault());
  input.addEventListener("input", () => {
    history.replaceState(null, "", `?q=${encodeURIComponent(input.value)}`);
    search(pagefind);
  });
}

start();
