// Places what the server formatted: texts, tiles, tables and bars; see ui/dashboard/cells.py.

import { el, show, svg } from "./dom.js";
import { localTimes } from "./format.js";

const SVG_BOX = { preserveAspectRatio: "none", "aria-hidden": "true" };
const TICK = 0.8;

/** A content of the server as nodes. */
export function content(given) {
  if (given === null || given === undefined) return [];
  if (typeof given === "string") return localTimes(given).split("`").map((text, index) => (index % 2 ? el("code", {}, text) : text));
  if (Array.isArray(given)) return given.flatMap(content);
  const { text, kind, value, said, href, bar, spark } = given;
  if (bar) return [barOf(bar)];
  if (spark !== undefined) return [svg("svg", { class: "spark", viewBox: "0 0 100 20", ...SVG_BOX }, svg("polyline", { points: spark }))];
  const attributes = { class: kind || null, ...(value === undefined ? {} : { value: String(value) }), ...(href ? { href, rel: "noreferrer", "aria-label": said } : {}) };
  if (said && !href) return [el("span", { class: kind || null }, el("span", { "aria-hidden": "true" }, content(text)), el("span", { class: "unseen" }, said))];
  return [el(href ? "a" : value === undefined ? "span" : "data", attributes, content(text))];
}

/** A bar of [kind, share]: one after the other, and a tick at what is planned. */
export function barOf(parts) {
  let left = 0;
  const rects = parts.map(([kind, share]) => {
    const isTick = kind === "planned";
    const x = isTick ? share * 100 - TICK / 2 : left;
    if (!isTick) left += share * 100;
    return svg("rect", { class: kind, x, y: 0, width: isTick ? TICK : share * 100, height: 10 });
  });
  return svg("svg", { class: "bar", viewBox: "0 0 100 10", ...SVG_BOX }, rects);
}

/** What the colours of bars mean: [kind, words] of each. */
export const legendOf = (keys) => el("p", { class: "note-line" }, keys.map(([kind, words]) => el("span", { class: `key ${kind}` }, `${words} `)));

/** A cell for each device, with its state as its colour and in words. */
export const mapOf = ({ name, cells, keys }) => [
  el("ul", { class: "devices", "aria-label": `${name} by state` }, cells.map(([device, kind, words]) =>
    el("li", { class: kind, title: `${device}: ${words}` }, device, el("span", { class: "unseen" }, `: ${words}`)))),
  legendOf(keys)];

/** Tiles in a row; as many as before stay until the new ones are there. */
export function showTiles(place, tiles) {
  show(place, tiles.map(({ name, big, bar, notes }) => el("div", { class: "tile", "data-tile": name },
    el("h2", {}, name), el("p", { class: "big" }, content(big)), bar ? barOf(bar) : null,
    notes.map((note) => el("p", { class: "note-line" }, content(note))))));
}

const textOf = (cell) => (cell === null ? "" : typeof cell === "string" ? cell : Array.isArray(cell) ? cell.map(textOf).join("") : cell.value ?? textOf(cell.text ?? ""));
const order = new Intl.Collator("en", { numeric: true });

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return Number(typeof a !== "number") - Number(typeof b !== "number") || order.compare(a, b);
}

/**
 * A table of the server. A head that begins with "#" is of numbers, one that ends with "~" is left out on a narrow screen.
 * options: sort { by, isDown } with onSort(head), and row(index): { class, name } of a row, null to leave it out.
 */
export function tableOf({ caption, heads, rows, total }, { kind = null, sort = null, onSort = null, row = () => ({}) } = {}) {
  const classes = heads.map((head) => [head.startsWith("#") ? "n" : "", head.endsWith("~") ? "wide" : ""].filter(Boolean).join(" ") || null);
  const names = heads.map((head) => head.replace(/^#|~$/g, ""));
  const head = (name, index) => {
    const isSorted = sort?.by === name;
    return el("th", { scope: "col", class: classes[index], "aria-sort": isSorted ? (sort.isDown ? "descending" : "ascending") : null }, onSort
      ? el("button", { type: "button", class: "sort", "data-key": name, onclick: () => onSort(name, heads[index].startsWith("#")) },
        name, el("span", { "aria-hidden": "true" }, isSorted ? (sort.isDown ? " ▾" : " ▴") : ""))
      : name);
  };
  const cells = (given) => given.map((cell, index) =>
    (index === 0 ? el("th", { scope: "row", class: classes[0] }, content(cell)) : el("td", { class: classes[index] }, content(cell))));
  const at = sort ? names.indexOf(sort.by) : -1;
  const ordered = rows.map((one, index) => ({ one, index }));
  if (at >= 0) ordered.sort((a, b) => (sort.isDown ? -1 : 1) * compare(textOf(a.one[at]), textOf(b.one[at])));
  const made = ({ one, index }) => {
    const own = row(index);
    return own === null ? null : el("tr", { class: own.class ?? null, "data-row": own.name ?? textOf(one[0]) }, own.head ? [own.head(one[0]), ...cells(one).slice(1)] : cells(one));
  };
  return el("table", { class: kind }, el("caption", {}, localTimes(caption)),
    el("thead", {}, el("tr", {}, names.map(head))), el("tbody", {}, ordered.map(made)),
    total?.length ? el("tfoot", {}, el("tr", {}, cells(total))) : null);
}

/** A table in a box of its own, or what is said without a row. */
export const boxed = (table, options = {}) => (table.rows.length
  ? el("div", { class: "scroll card", tabindex: 0, role: "region", "aria-label": localTimes(table.caption) }, tableOf(table, options))
  : el("p", { class: "muted" }, table.none));
