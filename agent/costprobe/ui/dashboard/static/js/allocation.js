// Where the money of the last 24 h went: services, models, idle time, probing, remainder, and labels.

import { bar, byId, el, show } from "./dom.js";
import { money, percent, when } from "./format.js";
import { presentMs } from "./freshness.js";

const exact = (value, text) => el("data", { value: String(value) }, text);
const WORDS = { idle: "idle time of services", probing: "probing", remainder: "no service, or not yet allocated" };

function scrolled(name, content) {
  return el("div", { class: "scroll card", tabindex: 0, role: "region", "aria-label": name }, content);
}

function allocationTable({ parts, cost: total, coverage, currency }, sinceMs) {
  const name = (part) => (part.kind === "service" || part.kind === "model" ? part.name : WORDS[part.kind]);
  const row = (part) => el("tr", { class: part.kind, "data-part": part.kind },
    el("th", { scope: "row" }, el("span", { class: `key ${part.kind}` }, name(part))),
    el("td", { class: "n" }, exact(part.cost, money(part.cost, currency))),
    el("td", { class: "n" }, percent(total > 0 ? part.cost / total : null)),
    el("td", { class: "wide" }, bar([[part.kind, total > 0 ? part.cost / total : 0]])));
  const known = coverage < 0.995 ? `, ${percent(coverage)} of it known` : "";
  return scrolled("Cost by use", el("table", {},
    el("caption", {}, `Hardware and electricity since ${when(sinceMs, presentMs())}${known}.`),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Use"), el("th", { scope: "col", class: "n" }, "Cost"),
      el("th", { scope: "col", class: "n" }, "Share"), el("th", { scope: "col", class: "wide" }, el("span", { class: "unseen" }, "Share as a bar")))),
    el("tbody", {}, parts.map(row)),
    el("tfoot", {}, el("tr", {}, el("th", { scope: "row" }, "Total"),
      el("td", { class: "n" }, exact(total, money(total, currency))), el("td", { class: "n" }, percent(1)), el("td", { class: "wide" })))));
}

function labelTable(labels) {
  const row = ({ label, value, currency, cost }) => el("tr", {},
    el("th", { scope: "row" }, label), el("td", {}, value ?? "none"), el("td", { class: "n" }, exact(cost, money(cost, currency))));
  return scrolled("Cost of each label", el("table", {},
    el("caption", {}, "Divided by each label of services, probes and hosts; none: without the label."),
    el("thead", {}, el("tr", {}, ["Label", "Value", "Cost"].map((head, index) =>
      el("th", { scope: "col", class: index === 2 ? "n" : null }, head)))),
    el("tbody", {}, labels.map(row))));
}

/** Show the answer of `/api/spend`. */
export function showAllocation({ allocations, labels, since_ms: sinceMs }) {
  show(byId("spend"), allocations.length
    ? [allocations.map((one) => allocationTable(one, sinceMs)), labels.length ? labelTable(labels) : null]
    : el("p", { class: "muted" }, "No device had a price in the last 24 hours."));
}
