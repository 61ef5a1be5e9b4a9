// Names for what the theme leaves without one: the search, and the landmark of each copy button; and
// tables that scroll can be reached with the keyboard.
new MutationObserver(() => {
  document.querySelector(".md-search:not([aria-label])")?.setAttribute("aria-label", "Search");
  for (const [number, nav] of document.querySelectorAll("nav.md-code__nav").entries()) {
    if (!nav.ariaLabel) nav.ariaLabel = `Code ${number + 1}`;
  }
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) {
    if (table.scrollWidth > table.clientWidth) table.tabIndex = 0;
  }
}).observe(document.documentElement, { childList: true, subtree: true });
