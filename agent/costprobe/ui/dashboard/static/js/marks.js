// Marks above a chart: events, incidents and annotations, as buttons whose text is shown on hover and focus.

import { el } from "./dom.js";
import { localTimes } from "./format.js";

// Marks closer than a button is wide share one.
const BUTTON_PX = 26;
const TEXTS_MAX = 8;

function textsOf(marks) {
  const more = marks.length - TEXTS_MAX;
  return [...marks.slice(0, TEXTS_MAX).map(({ text }) => localTimes(text)), ...(more > 0 ? [`and ${more} more, in the list below the chart`] : [])];
}

/** The row of buttons; one stop of the tabulator key, arrow keys lead from one to the next. */
export class MarkStrip {
  constructor(tip) {
    this.tip = tip;
    this.key = "";
    this.row = el("div", { class: "marks", role: "toolbar", "aria-label": "Marks" });
    this.row.addEventListener("keydown", (event) => this.step(event));
  }

  /** Put the marks over the plot at their times. */
  place(plot, marks) {
    const [from, to] = [plot.scales.x.min, plot.scales.x.max];
    const groups = [];
    // An incident that fired before is at the left edge.
    for (const mark of marks.filter(({ x, end }) => (end ?? x) >= from && x <= to)) {
      const left = plot.valToPos(Math.max(from, mark.x), "x");
      const last = groups.at(-1);
      if (last && left - last.left < BUTTON_PX) last.marks.push(mark);
      else groups.push({ left, marks: [mark] });
    }
    const offset = plot.over.offsetLeft;
    const key = JSON.stringify([offset, groups]);
    if (key === this.key) return;
    this.key = key;
    const focused = Array.from(this.row.children).indexOf(document.activeElement);
    this.row.replaceChildren(...groups.map((group, index) => this.button(group, offset, index === 0)));
    this.row.setAttribute("aria-label", `Marks: ${groups.reduce((sum, group) => sum + group.marks.length, 0)} in this range`);
    this.row.children[Math.min(focused, groups.length - 1)]?.focus();
  }

  button({ left, marks }, offset, isFirst) {
    const kinds = new Set(marks.map((mark) => mark.kind));
    const [kind] = kinds.size === 1 ? kinds : ["several"];
    const name = `${marks.length > 1 ? `${marks.length} marks: ` : ""}${textsOf(marks).join(". ")}`;
    const made = el("button", {
      type: "button", class: `mark m-${kind}`, tabindex: isFirst ? 0 : -1, "aria-label": name,
    }, marks.length > 1 ? String(marks.length) : marks[0].letter);
    made.style.left = `${offset + left - BUTTON_PX / 2}px`;
    const open = () => this.tip.show(offset + left, BUTTON_PX + 2, textsOf(marks).map((text) => el("p", {}, text)), true);
    made.addEventListener("pointerenter", open);
    made.addEventListener("focus", open);
    made.addEventListener("click", open);
    made.addEventListener("pointerleave", () => this.tip.leave());
    made.addEventListener("blur", () => this.tip.hide());
    return made;
  }

  step(event) {
    if (event.key === "Escape") this.tip.hide();
    const buttons = Array.from(this.row.children);
    const at = buttons.indexOf(document.activeElement);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (next === undefined || !buttons[next]) return;
    event.preventDefault();
    for (const [index, button] of buttons.entries()) button.tabIndex = index === next ? 0 : -1;
    buttons[next].focus();
  }
}

const pixels = () => devicePixelRatio;

/** Lines at the times of marks, and a bar above the plot while an incident fires. */
export function drawMarks(plot, marks, colour) {
  const { ctx, bbox } = plot;
  const right = bbox.left + bbox.width;
  ctx.save();
  ctx.lineWidth = pixels();
  ctx.setLineDash([4 * pixels(), 3 * pixels()]);
  for (const mark of marks) {
    const x = Math.round(plot.valToPos(mark.x, "x", true));
    ctx.strokeStyle = ctx.fillStyle = colour(`--m-${mark.kind}`) || colour("--muted");
    if (mark.end) {
      const end = Math.min(right, plot.valToPos(mark.end, "x", true));
      const begin = Math.max(bbox.left, x);
      if (end > begin) ctx.fillRect(begin, bbox.top, end - begin, 4 * pixels());
    }
    if (x < bbox.left || x > right) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}
