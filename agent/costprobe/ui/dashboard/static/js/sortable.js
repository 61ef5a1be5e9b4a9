// A table that its reader sorts by a column; the order survives updates.

import { el } from "./dom.js";

/** Compares texts for people: gpu2 before gpu10. */
export const order = new Intl.Collator("en", { numeric: true });

function compare(a, b) {
  const [isKnown, isOther] = [a, b].map((value) => value !== null && value !== undefined && value !== "");
  if (!isKnown || !isOther) return Number(isOther) - Number(isKnown);
  return typeof a === "number" && typeof b === "number" ? a - b : order.compare(String(a), String(b));
}

export class SortableTable {
  /** columns: [{ name, key, value(row), cell(row), isNumber }]; changed() draws again. */
  constructor(caption, columns, changed) {
    Object.assign(this, { caption, columns, changed, by: columns[0].key, isDown: false });
  }

  sort(column) {
    this.isDown = this.by === column.key ? !this.isDown : Boolean(column.isNumber);
    this.by = column.key;
    this.changed();
  }

  head(column) {
    const isSorted = column.key === this.by;
    const direction = this.isDown ? "descending" : "ascending";
    return el("th", { scope: "col", class: column.isNumber ? "n" : null, "aria-sort": isSorted ? direction : null },
      el("button", { type: "button", class: "sort", "data-key": column.key, onclick: () => this.sort(column) },
        column.name, el("span", { "aria-hidden": "true" }, isSorted ? (this.isDown ? " ▾" : " ▴") : "")));
  }

  /** The table of rows; classOf(row) marks a row. Columns without any value are left out. */
  draw(rows, classOf = () => null) {
    const known = this.columns.filter((column) => rows.some((row) => ![null, undefined, ""].includes(column.value(row))));
    const sorted = this.columns.find((column) => column.key === this.by);
    const ordered = [...rows].sort((a, b) => {
      const [first, second] = [sorted.value(a), sorted.value(b)];
      const isMissing = [first, second].some((value) => value === null || value === undefined || value === "");
      return (this.isDown && !isMissing ? -1 : 1) * compare(first, second);
    });
    return el("table", {},
      el("caption", {}, this.caption),
      el("thead", {}, el("tr", {}, known.map((column) => this.head(column)))),
      el("tbody", {}, ordered.map((row) => el("tr", { class: classOf(row) },
        known.map((column, index) => (index === 0
          ? el("th", { scope: "row" }, column.cell(row))
          : el("td", { class: column.isNumber ? "n" : null }, column.cell(row))))))));
  }
}
