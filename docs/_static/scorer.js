/* Search: chapters before the reference of the library, and a word where excerpts cannot be shown.
   Sphinx puts this file into the page of the search. */
var Scorer = {
  score: ([docname, , , , score]) => (docname.startsWith("api/") ? score - 100 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

if (location.protocol === "file:") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false; // a browser lets no file read another
  document.getElementById("search-results").insertAdjacentHTML(
    "beforebegin",
    "<p>Opened from a file, the search finds pages but cannot show excerpts of them.</p>",
  );
}
