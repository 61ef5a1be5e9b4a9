// Where the money of the last 24 h went: services, models, idle time, probing and remainder, by tenant, and by label.

import { bar, byId, el, show } from "./dom.js";
import { money, percent, plural, when } from "./format.js";
import { presentMs } from "./freshness.js";

const exact = (value, text) => el("data", { value: String(value) }, text);
const WORDS = { idle: "idle time of services", probing: "probing", remainder: "no service, or not yet allocated" };
const BRIEF = { idle: "idle", probing: "probing", remainder: "no service" };
const LARGEST = 2;
// Of the cost without a tenant: its words, and the kind of use that has its colour.
const RESTS = { unattributed: "unattributed", probing: "probing", unallocated: "no service with tenants, or not yet allocated" };
const KINDS = { unattributed: "idle", probing: "probing", unallocated: "remainder" };

function scrolled(name, content, kind = "") {
  return el("div", { class: `scroll card ${kind}`.trim(), tabindex: 0, role: "region", "aria-label": name }, content);
}

/** Rows of [{ kind, name, cost }], each with its share of the total as a number and a bar. */
function shareTable(name, caption, head, rows, { cost: total, currency }) {
  const shareOf = (cost) => (total > 0 ? cost / total : null);
  const row = (part) => el("tr", { class: part.kind, "data-part": part.kind },
    el("th", { scope: "row" }, el("span", { class: `key ${part.kind}` }, part.name)),
    el("td", { class: "n" }, exact(part.cost, money(part.cost, currency))),
    el("td", { class: "n" }, percent(shareOf(part.cost))),
    el("td", { class: "wide" }, bar([[part.kind, shareOf(part.cost) ?? 0]])));
  return scrolled(name, el("table", {},
    el("caption", {}, caption),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, head), el("th", { scope: "col", class: "n" }, "Cost"),
      el("th", { scope: "col", class: "n" }, "Share"), el("th", { scope: "col", class: "wide" }, el("span", { class: "unseen" }, "Share as a bar")))),
    el("tbody", {}, rows.map(row)),
    el("tfoot", {}, el("tr", {}, el("th", { scope: "row" }, "Total"),
      el("td", { class: "n" }, exact(total, money(total, currency))), el("td", { class: "n" }, percent(1)), el("td", { class: "wide" })))));
}

function allocationTable(allocation, sinceMs) {
  const { parts, coverage } = allocation;
  const rows = parts.map((part) => ({ ...part, name: part.name || WORDS[part.kind] }));
  const known = coverage < 0.995 ? `, ${percent(coverage)} of it known` : "";
  return shareTable("Cost by use", `Hardware and electricity since ${when(sinceMs, presentMs())}${known}.`, "Use", rows, allocation);
}

/** A bar of the uses of the last day, and a link that names the largest two; null without services. */
export function largestUses({ parts, cost: total }) {
  const uses = parts.filter(({ kind }) => kind !== "model");
  if (uses.length < 2 || !(total > 0)) return null;
  const words = [...uses].sort((a, b) => b.cost - a.cost).slice(0, LARGEST)
    .map(({ kind, name, cost }) => `${percent(cost / total)} ${name || BRIEF[kind]}`);
  return [bar(uses.map(({ kind, cost }) => [kind, cost / total])),
    el("p", { class: "note-line" }, el("a", { href: "#split-title" }, `24 h: ${words.join(", ")}`))];
}

function tenantTable(allocation) {
  const { parts, left_out: others } = allocation;
  const words = { ...RESTS, others: plural(others, "more tenant") };
  const saved = (amount) => (Number.isFinite(amount) ? `, saved ${money(amount, allocation.currency)}` : "");
  const cache = (part) => (part.cached_share ? ` (${percent(part.cached_share)} of tokens in cached${saved(part.cache_saved)})` : "");
  const rows = parts.map((part) => ({ kind: KINDS[part.rest] ?? "tenant", name: (words[part.rest] ?? part.name) + cache(part), cost: part.cost }));
  return shareTable("Cost by tenant", "The same cost by tenant; unattributed: services with tenants whose counters do not explain it.",
    "Tenant", rows, allocation);
}

function labelTable(labels) {
  const row = ({ label, value, currency, cost }) => el("tr", {},
    el("th", { scope: "row" }, label), el("td", {}, value ?? "none"), el("td", { class: "n" }, exact(cost, money(cost, currency))));
  return scrolled("Cost of each label", el("table", {},
    el("caption", {}, "Divided by each label of services, probes and hosts; none: without the label."),
    el("thead", {}, el("tr", {}, ["Label", "Value", "Cost"].map((head, index) =>
      el("th", { scope: "col", class: index === 2 ? "n" : null }, head)))),
    el("tbody", {}, labels.map(row))), "labels");
}

/** Show the answer of `/api/spend`. */
export function showAllocation({ allocations, tenants, labels, since_ms: sinceMs }) {
  show(byId("spend"), allocations.length
    ? [allocations.map((one) => allocationTable(one, sinceMs)), tenants.map(tenantTable), labels.length ? labelTable(labels) : null]
    : el("p", { class: "muted" }, "No device had a price in the last 24 hours."));
}
