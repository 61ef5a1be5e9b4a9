// A box beside the pointer or the focus, over a chart. Its content is also in the texts of the controls.

import { el } from "./dom.js";

const GAP_PX = 14;
const LEAVE_MS = 200;

export class Tip {
  constructor(place) {
    this.place = place;
    this.timer = null;
    this.box = el("div", { class: "tip", "aria-hidden": "true", hidden: true });
    place.append(this.box);
    // Text of a mark can be read and selected with the pointer.
    this.box.addEventListener("pointerenter", () => clearTimeout(this.timer));
    this.box.addEventListener("pointerleave", () => this.hide());
  }

  /** Show content at a place of the chart in CSS pixels; `isStill` for content that the pointer may enter. */
  show(left, top, content, isStill) {
    clearTimeout(this.timer);
    this.box.replaceChildren(...content);
    this.box.classList.toggle("still", isStill);
    this.box.hidden = false;
    const { clientWidth: wide, clientHeight: high } = this.place;
    const { offsetWidth: own, offsetHeight: tall } = this.box;
    const right = left + GAP_PX + own <= wide ? left + GAP_PX : left - GAP_PX - own;
    this.box.style.left = `${Math.max(0, Math.min(right, wide - own))}px`;
    this.box.style.top = `${Math.max(0, Math.min(top, high - tall))}px`;
  }

  hide() {
    clearTimeout(this.timer);
    this.box.hidden = true;
    this.box.replaceChildren();
  }

  /** Hide soon, unless the pointer enters the box. */
  leave() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.hide(), LEAVE_MS);
  }
}
