// The slides are 1280 by 720. On a phone held upright they have its shape, and their columns become one.
const upright = matchMedia("screen and (max-aspect-ratio: 1/1)");

function shape() {
  const tall = upright.matches && !location.search.includes("print-pdf");
  document.documentElement.classList.toggle("tall", tall);
  const height = 720 * Math.min(Math.max(innerHeight / innerWidth, 1.6), 2.2);
  return tall ? { width: 720, height } : { width: 1280, height: 720 };
}

addEventListener("resize", () => Reveal.configure(shape()));

const deck = {
  ...shape(),
  margin: 0,
  center: false,
  hash: true,
  slideNumber: "c/t",
  navigationMode: "linear",
  transition: "none",
  pdfMaxPagesPerSlide: 1,
  pdfSeparateFragments: false,
  scrollActivationWidth: null,
};

// reveal.js calls the deck an application, in which screen readers would read nothing by themselves.
addEventListener("load", () => {
  document.querySelector(".slides").removeAttribute("role");
  document.querySelector(".reveal").setAttribute("role", "main");
});

// One deck held all three talks once: a link to one of its slides leads to the talk.
const name = location.hash.replace(/^#\/?/, "");
addEventListener("load", () => {
  const link = name && !document.getElementById(name) && document.querySelector(`a[href$="#${CSS.escape(name)}"]`);
  if (link) location.replace(link.href);
});
