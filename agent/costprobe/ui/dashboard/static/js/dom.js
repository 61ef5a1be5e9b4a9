// DOM elements from text: measured values and names are never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

// Control characters, and invisible ones that change the direction of text.
const UNPRINTABLE = /[\p{Cc}\u200e\u200f\u202a-\u202e\u2066-\u2069]+/gu;
const printable = (child) => (typeof child === "string" ? child.replace(UNPRINTABLE, " ") : child);

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "onclick" || name === "oninput") node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined).map(printable));
  return node;
}

export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** The value of a colour of the page, such as "--s0". */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export const byId = (id) => document.getElementById(id);

/**
 * Replace the content of an element unless it is unchanged, to keep the scroll position.
 * Details with a data-key stay open, and the focus stays where it was among its kind.
 */
export function show(place, ...children) {
  const fresh = el("div", {}, ...children);
  const open = new Set(Array.from(place.querySelectorAll("details[open]"), (entry) => entry.dataset.key));
  for (const entry of fresh.querySelectorAll("details[data-key]")) entry.open = open.has(entry.dataset.key);
  if (place.innerText !== undefined && place.isEqualNode(shell(place, fresh))) return;
  const { activeElement: held } = document;
  const alike = () => Array.from(place.querySelectorAll(held.tagName));
  const at = place.contains(held) ? alike().indexOf(held) : -1;
  place.replaceChildren(...fresh.childNodes);
  if (at >= 0) alike()[at]?.focus({ preventScroll: true });
}

function shell(place, fresh) {
  const copy = place.cloneNode(false);
  copy.append(...Array.from(fresh.childNodes, (node) => node.cloneNode(true)));
  return copy;
}
