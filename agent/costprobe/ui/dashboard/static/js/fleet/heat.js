// The heat map: a row for each host, a cell for each GPU, coloured by its deviation from peers.

import { byId, el, show } from "../dom.js";
import { number, plural, span } from "../format.js";
import { Tip } from "../tip.js";

// Excess in percent from which a colour counts, and its class.
const STEPS = [[8, "s3"], [4, "s2"], [2, "s1"], [-2, "level"], [-4, "f1"], [-8, "f2"], [-Infinity, "f3"]];
// With more rows the hosts stand in several columns, and cells have no number.
export const LINES_MAX = 40;
const NAME_MAX = 22;
const KEYS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
const WORDS = { time: ["slower", "faster"], energy: ["more energy", "less energy"] };

export const colourClass = (pct) => (pct === null ? "none" : STEPS.find(([from]) => pct >= from || from === -Infinity)[1]);

const signed = (pct) => `${pct > 0 ? "+" : pct < 0 ? "−" : ""}${number(Math.abs(pct), pct < 10 ? 2 : 3)}`;

function cellWords(row, [device, pct, isListed], metric) {
  const size = pct === null ? "not tested" : `${metric} ${signed(pct)} % against its peers`;
  return `${row.host} ${device}: ${size}${isListed ? ", outlier" : ""}${row.silent_s === null ? "" : `, silent for ${span(row.silent_s)}`}`;
}

function cellOf(row, cell, metric, isChosen) {
  if (!cell) return el("div", { class: "cell absent", role: "gridcell", "aria-label": "no such device" });
  const [device, pct, isListed] = cell;
  const classes = ["cell", colourClass(pct), isListed ? "listed" : "", row.silent_s === null ? "" : "silent"];
  const text = pct === null ? "·" : Math.abs(pct) >= 2 ? signed(pct) : "";
  return el("div", {
    class: classes.filter(Boolean).join(" "), role: "gridcell", tabindex: -1, "data-host": row.host, "data-device": device,
    "aria-label": cellWords(row, cell, metric), "aria-selected": isChosen(row.host, device) ? "true" : null,
  }, text);
}

function scale(figures) {
  const sample = (kind) => el("span", { class: `cell ${kind}`, "aria-hidden": "true" });
  const [more, less] = WORDS[figures.metric];
  return el("ul", { class: "scale", "aria-label": "Colours" },
    el("li", { class: "steps" }, el("span", {}, `8 % ${less}`), ["f3", "f2", "f1", "level", "s1", "s2", "s3"].map(sample), el("span", {}, `8 % ${more}`)),
    el("li", {}, sample("level"), "within 2 %"), el("li", {}, sample("level listed"), "outlier"),
    el("li", {}, sample("none"), "not tested"), el("li", {}, sample("level silent"), "silent"));
}

export class HeatMap {
  /** choose(host, device) selects a GPU; showMore(isAll) asks for all hosts, or fewer. */
  constructor(choose, showMore) {
    Object.assign(this, { choose, showMore, chosen: ["", ""], drawn: "" });
    this.place = byId("map");
    this.place.classList.add("place");
    this.body = el("div", {});
    this.place.append(this.body);
    this.tip = new Tip(this.place);
    const cellAt = (event) => event.target.closest?.(".heat .cell[data-device]");
    this.place.addEventListener("click", (event) => this.pick(cellAt(event)));
    this.place.addEventListener("keydown", (event) => this.key(event, cellAt(event)));
    for (const name of ["pointerover", "focusin"]) this.place.addEventListener(name, (event) => this.hover(cellAt(event)));
    for (const name of ["pointerleave", "focusout"]) this.place.addEventListener(name, () => this.tip.hide());
  }

  pick(cell) {
    if (cell) this.choose(cell.dataset.host, cell.dataset.device);
  }

  hover(cell) {
    if (!cell) {
      this.tip.hide();
      return;
    }
    const [own, whole] = [cell.getBoundingClientRect(), this.place.getBoundingClientRect()];
    this.tip.show(own.right - whole.left, own.top - whole.top, [el("p", {}, cell.getAttribute("aria-label"))], false);
  }

  key(event, cell) {
    if (!cell) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.pick(cell);
    }
    const step = KEYS[event.key];
    if (!step) return;
    event.preventDefault();
    const rows = [...this.place.querySelectorAll(".heat .row.gpus")];
    const cells = (row) => [...(row?.querySelectorAll(".cell") ?? [])];
    const row = cell.closest(".row");
    const next = cells(rows[rows.indexOf(row) + step[1]])[cells(row).indexOf(cell) + step[0]];
    if (!next?.dataset.device) return;
    this.reach(next);
    next.focus();
  }

  /** Of the grid one cell is in the order of the tab key; arrows lead to the others. */
  reach(cell) {
    this.place.querySelector(".heat .cell[tabindex='0']")?.setAttribute("tabindex", "-1");
    cell?.setAttribute("tabindex", "0");
  }

  /** Mark the selected GPU; `host` may be empty. */
  mark(host, device) {
    if (this.chosen[0] === host && this.chosen[1] === device) return;
    this.chosen = [host, device];
    for (const cell of this.place.querySelectorAll(".cell[aria-selected]")) cell.removeAttribute("aria-selected");
    for (const cell of this.place.querySelectorAll(".heat .cell[data-device]")) {
      if (cell.dataset.host === host && (!device || cell.dataset.device === device)) cell.setAttribute("aria-selected", "true");
    }
  }

  /** Show the answer of `/api/map`. */
  draw(answer) {
    const { figures } = answer;
    if (!figures) {
      this.drawn = "";
      show(this.body, el("p", { class: "muted" }, answer.error ? "No answer yet." : "Comparing all GPUs with their peers: this takes some seconds…"));
      return;
    }
    // Most answers are those before: thousands of cells are drawn again only if one differs.
    const text = JSON.stringify(figures);
    if (text === this.drawn) return;
    this.drawn = text;
    const { rows, columns, metric, hosts, gpus } = figures;
    const isWhole = rows.length > LINES_MAX;
    const [host, device] = this.chosen;
    const isChosen = (ofHost, ofDevice) => host === ofHost && (!device || device === ofDevice);
    byId("screen").classList.toggle("whole", isWhole);
    this.body.style.setProperty("--name", `${Math.min(NAME_MAX, Math.max(...rows.map((row) => row.host.length), 0)) + 1}ch`);
    const groups = new Map();
    for (const row of rows) groups.set(row.group, [...(groups.get(row.group) ?? []), row]);
    const isGrouped = [...groups.keys()].some((name) => name !== null);
    const line = (row) => el("div", { class: `row gpus ${row.silent_s === null ? "" : "silent"}`.trim(), role: "row" },
      el("div", { class: "name", role: "rowheader", title: row.host }, row.host), row.cells.map((cell) => cellOf(row, cell, metric, isChosen)));
    const heads = columns && !isWhole ? el("div", { class: "row", role: "row" },
      el("div", { class: "name", role: "columnheader" }, el("span", { class: "unseen" }, "host")),
      columns.map((name) => el("div", { class: "head", role: "columnheader" }, name))) : null;
    const focused = document.activeElement?.closest?.(".heat .cell")?.dataset;
    this.body.replaceChildren(...(rows.length
      ? [el("div", { class: `heat ${isWhole ? "whole" : ""}`.trim(), role: "grid", "aria-label": `Deviation of ${metric} per inference from peers` },
        heads, [...groups].flatMap(([name, own]) => [isGrouped
          ? el("div", { class: "group", role: "row" }, el("span", { role: "rowheader" }, name ?? "without the label")) : null, own.map(line)])),
      scale(figures),
      el("p", { class: "note-line muted" }, `${number(rows.length)} of ${plural(hosts, "host")}, ${plural(gpus, "GPU")}; medians of the last 7 days${isWhole && columns ? `; from left to right ${columns[0]} to ${columns.at(-1)}` : ""}. `,
        rows.length < hosts ? el("button", { type: "button", class: "more", onclick: () => this.showMore(true) }, `Show all ${number(hosts)}`)
          : isWhole ? el("button", { type: "button", class: "more", onclick: () => this.showMore(false) }, "Show fewer") : null)]
      : [el("p", { class: "muted" }, "No GPU sent rows in the last 7 days.")]));
    const all = [...this.place.querySelectorAll(".heat .cell[data-device]")];
    const again = focused && all.find(({ dataset }) => dataset.host === focused.host && dataset.device === focused.device);
    this.reach(again ?? all[0]);
    if (again) again.focus();
  }
}
