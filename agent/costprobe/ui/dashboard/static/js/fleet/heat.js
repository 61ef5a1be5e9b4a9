// The heat map: a row for each host, a cell for each GPU, coloured by its deviation from peers.

import { byId, el, show } from "../dom.js";
import { Tip } from "../tip.js";

const NAME_MAX = 22;
const KEYS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
const STEPS = ["f3", "f2", "f1", "level", "s1", "s2", "s3"];

const sample = (kind) => el("span", { class: `cell ${kind}`, "aria-hidden": "true" });
const scale = ({ ends: [less, more], keys }) => el("ul", { class: "scale", "aria-label": "Colours" },
  el("li", { class: "steps" }, el("span", {}, less), STEPS.map(sample), el("span", {}, more)),
  keys.map(([kind, words]) => el("li", {}, sample(kind), words)));

function cellOf({ host, silent }, cell, said, isChosen) {
  if (!cell) return el("div", { class: "cell absent", role: "gridcell", "aria-label": "no such device" });
  const [device, kind, text] = cell;
  const words = [text ? said.replace("{}", text) : "not tested", kind.includes("listed") && "outlier", silent].filter(Boolean).join(", ");
  return el("div", {
    class: `cell ${kind}${silent ? " silent" : ""}`, role: "gridcell", tabindex: -1, "data-host": host, "data-device": device,
    "aria-label": `${host} ${device}: ${words}`, "aria-selected": isChosen(host, device) ? "true" : null,
  }, text === "" ? "·" : kind.startsWith("level") ? "" : text);
}

export class HeatMap {
  /** choose(host, device) selects a GPU; showMore() asks for all hosts, or fewer. */
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

  isChosen(host, device) {
    return this.chosen[0] === host && ["", device].includes(this.chosen[1]);
  }

  /** Mark the selected GPU; `host` may be empty. */
  mark(host, device) {
    this.chosen = [host, device];
    for (const cell of this.place.querySelectorAll(".heat .cell[data-device]")) {
      if (this.isChosen(cell.dataset.host, cell.dataset.device)) cell.setAttribute("aria-selected", "true");
      else cell.removeAttribute("aria-selected");
    }
  }

  /** Show `map` of `/api/map`, or words without it. */
  draw(map, waiting) {
    // Most answers are those before: thousands of cells are drawn again only if one differs.
    const text = JSON.stringify(map);
    if (map && text === this.drawn) return;
    this.drawn = text;
    if (!map?.rows.length) {
      show(this.body, el("p", { class: "muted" }, map ? map.none : waiting));
      return;
    }
    const { rows, columns, is_whole: isWhole } = map;
    const isChosen = (host, device) => this.isChosen(host, device);
    byId("screen").classList.toggle("whole", isWhole);
    this.body.style.setProperty("--name", `${Math.min(NAME_MAX, Math.max(...rows.map(({ host }) => host.length))) + 1}ch`);
    const line = (row, index) => [
      row.group !== null && row.group !== rows[index - 1]?.group ? el("div", { class: "group", role: "row" }, el("span", { role: "rowheader" }, row.group)) : null,
      el("div", { class: `row gpus${row.silent ? " silent" : ""}`, role: "row" },
        el("div", { class: "name", role: "rowheader", title: row.host }, row.host), row.cells.map((cell) => cellOf(row, cell, map.said, isChosen)))];
    const heads = columns ? el("div", { class: "row", role: "row" },
      el("div", { class: "name", role: "columnheader" }, el("span", { class: "unseen" }, "host")),
      columns.map((name) => el("div", { class: "head", role: "columnheader" }, name))) : null;
    const focused = document.activeElement?.closest?.(".heat .cell")?.dataset;
    const grid = el("div", { class: `heat${isWhole ? " whole" : ""}`, role: "grid", "aria-label": map.name }, heads, rows.map(line));
    const more = map.more ? el("button", { type: "button", class: "more", onclick: () => this.showMore() }, map.more) : null;
    this.body.replaceChildren(grid, scale(map), el("p", { class: "note-line muted" }, map.note, more));
    const all = [...this.place.querySelectorAll(".heat .cell[data-device]")];
    const again = focused && all.find(({ dataset }) => dataset.host === focused.host && dataset.device === focused.device);
    this.reach(again ?? all[0]);
    if (again) again.focus();
  }
}
