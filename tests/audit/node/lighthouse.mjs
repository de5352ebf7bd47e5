// `node lighthouse.mjs CHROME CATEGORIES URL...`: Lighthouse for a phone, a line of JSON for each page.

import { launch } from "chrome-launcher";
import lighthouse, { defaultConfig } from "lighthouse";

const [chromePath, names, ...urls] = process.argv.slice(2);
const categories = names.split(",");
const weightless = categories.flatMap((name) => defaultConfig.categories[name].auditRefs)
  .filter(({ weight }) => weight === 0)
  .map(({ id }) => id); // these do not move a score
const settings = {
  onlyCategories: categories,
  skipAudits: weightless,
  disableFullPageScreenshot: true,
};

const measure = async (url, port) => {
  const { lhr } = await lighthouse(url, { port, logLevel: "error" }, {
    extends: "lighthouse:default",
    settings,
  });
  if (lhr.runtimeError) throw new Error(`${url}: ${lhr.runtimeError.message}`);
  return lhr;
};
const percent = (lhr, name) => Math.floor(100 * lhr.categories[name].score);
const missed = (lhr, name) =>
  lhr.categories[name].auditRefs
    .filter(({ id, weight }) => weight && lhr.audits[id].score !== null && lhr.audits[id].score < 0.9)
    .map(({ id }) => {
      const { title, displayValue, details } = lhr.audits[id];
      const node = details?.items?.[0]?.node;
      return [title, displayValue, node && `${node.selector} ${node.snippet}`].filter(Boolean).join(": ");
    });

const chrome = await launch({ chromePath, chromeFlags: ["--headless=new", "--no-sandbox"] });
try {
  await measure(urls[0], chrome.port); // a browser is slow at first
  for (const url of urls) {
    const lhr = await measure(url, chrome.port);
    const scores = Object.fromEntries(categories.map((name) => [name, percent(lhr, name)]));
    const reasons = Object.fromEntries(categories.map((name) => [name, missed(lhr, name)]));
    console.log(JSON.stringify({ url, scores, reasons }));
  }
} finally {
  chrome.kill();
}
