// Unit costs of models, spend by a key, and outliers.

import { byId, el, show } from "../dom.js";
import { money, number, percent, plural } from "../format.js";
import { barOf } from "../place.js";
import { exact } from "../tiles.js";
import { changeText, costCell } from "../unit_cells.js";
import { nameOf, plain } from "./totals.js";

const UNITS_SHOWN = 7;
const OUTLIERS_SHOWN = 4;
// A smaller spread is that of the measurement.
const LEAST_SPREAD = 0.005;
const KWH_J = 3.6e6;
const open = new Set();

const head = (names) => el("thead", {}, el("tr", {}, names.map((name) =>
  el("th", { scope: "col", class: [name.startsWith("#") ? "n" : "", name.includes("~") ? "wide" : ""].join(" ").trim() || null }, name === "~" ? el("span", { class: "unseen" }, "Share as a bar") : name.replace(/[#~]/g, "")))));

const waiting = (answer) => el("p", { class: "muted" }, answer.error ? "No answer yet." : "Asking the database…");

function unitRow(one) {
  const where = plural(one.series, one.basis === "probe" ? "device" : "host");
  const spread = one.spread_share > LEAST_SPREAD ? `, spread ${percent(one.spread_share)}` : "";
  return el("tr", { "data-unit": one.model },
    el("th", { scope: "row" }, el("span", { class: "name" }, one.model), " ", el("span", { class: "basis" }, one.basis === "probe" ? "probe" : "service")),
    el("td", { class: "n cost" }, costCell({ ...one, tags: { currency: one.currency } })),
    el("td", { class: "n" }, changeText(one.change_24h_pct)),
    el("td", { class: "n" }, changeText(one.change_7d_pct)),
    el("td", { class: "n wide" }, one.cost_per_h === null ? "–" : exact(one.cost_per_h, money(one.cost_per_h, one.currency))),
    el("td", { class: "on wide" }, `${where}${spread}`));
}

function more(name, left, draw) {
  if (left <= 0 && !open.has(name)) return null;
  const toggle = () => {
    if (!open.delete(name)) open.add(name);
    draw();
  };
  return el("button", { type: "button", class: "more", "aria-expanded": String(open.has(name)), onclick: toggle },
    open.has(name) ? "Show fewer" : `Show ${number(left)} more`);
}

/** Show `units` of `/api/fleet`. */
export function showUnits(answer) {
  const { figures } = answer;
  if (!figures) {
    show(byId("units"), waiting(answer));
    return;
  }
  const { units } = figures;
  const shown = open.has("units") ? units : units.slice(0, UNITS_SHOWN);
  show(byId("units"), units.length
    ? [el("table", { class: "units" }, el("caption", { class: "unseen" }, "The last hour, against the same hour a day and a week before; those that cost most first"),
      head(["Model", "#Cost now", "#24 h", "#7 d", "#An hour~", "On~"]), el("tbody", {}, shown.map(unitRow))),
    more("units", units.length - shown.length, () => showUnits(answer))]
    : el("p", { class: "muted" }, "No probe or service had a cost in the last hour."));
}

const spendRow = (name, costs, totals, { kind = null, energy = null, coverage = null } = {}) => costs.map((one, index) =>
  el("tr", { class: kind, "data-group": name },
    el("th", { scope: "row", title: name }, name),
    el("td", { class: "n" }, exact(one.cost, money(one.cost, one.currency))),
    el("td", { class: "n" }, percent(totals.get(one.currency) > 0 ? one.cost / totals.get(one.currency) : null)),
    el("td", { class: "n" }, percent(one.idle_share)),
    el("td", { class: "n wide" }, index || energy === null ? "–" : `${number(energy / KWH_J, 3)} kWh`),
    el("td", { class: "n wide" }, index || coverage === null ? "–" : percent(coverage)),
    el("td", { class: "wide" }, kind === "total" ? null : barOf([["service", totals.get(one.currency) > 0 ? one.cost / totals.get(one.currency) : 0]]))));

/** Show the answer of `/api/spend`; showAll() asks for every group. */
export function showSpend(answer, showAll) {
  const { figures } = answer;
  if (!figures) {
    show(byId("spend"), waiting(answer));
    return;
  }
  const { total, parts, rest, left_out: left, left_out_costs: leftCosts } = figures;
  const totals = new Map(total.costs.map(({ currency, cost }) => [currency, cost]));
  const details = (part) => ({ energy: part.energy_j, coverage: part.coverage });
  show(byId("spend"), total.costs.length
    ? [el("table", {}, el("caption", { class: "unseen" }, "Hardware and electricity of all devices, idle time included"),
      head(["Group", "#Cost", "#Share", "#Idle", "#Energy~", "#Covered~", "~"]),
      el("tbody", {}, parts.flatMap((part) => spendRow(part.group.join(" ") || "(none)", part.costs, totals, details(part))),
        left ? spendRow(`${number(left)} more`, leftCosts, totals) : null,
        rest ? spendRow("(unallocated)", rest, totals) : null),
      el("tfoot", {}, spendRow("Total", total.costs, totals, { ...details(total), kind: "total" }))),
    left ? el("button", { type: "button", class: "more", onclick: showAll }, `Show all ${number(left + parts.length)}`) : null]
    : el("p", { class: "muted" }, "No device had a cost in the last 24 hours."));
}

const excess = (pct) => (pct === null ? "–" : changeText(pct));

/** Show the outliers of `/api/map`; choose(outlier) selects one. */
export function showOutliers(answer, choose) {
  const { figures } = answer;
  if (!figures) {
    show(byId("outliers"), waiting(answer));
    return;
  }
  const { outliers, outliers_left_out: left, tested, untested, updated, levels } = figures;
  const notes = [
    `${plural(figures.outliers_total, "outlier")} of ${plural(tested, "GPU")}: at least ${number(figures.least_excess_pct)} % above their peers, at a nominal false discovery rate of ${percent(figures.false_share)}.`,
    untested ? `${plural(untested, "GPU")} without enough peers or runs.` : "",
    updated ? `${plural(updated, "GPU")} not tested: their software or model changed in the last 7 days.` : "",
    ...levels.filter((level) => level.time_excess_pct >= figures.least_excess_pct)
      .map((level) => `${level.label}=${level.value}: +${number(level.time_excess_pct, 3)} % time on ${plural(level.hosts, "host")}, not counted as a deviation.`),
  ].filter(Boolean).join(" ");
  const shown = open.has("outliers") ? outliers : outliers.slice(0, OUTLIERS_SHOWN);
  const isLinked = shown.some((one) => one.url);
  const row = (one) => el("tr", { "data-outlier": nameOf(one) },
    el("th", { scope: "row" }, el("button", { type: "button", class: "expand", onclick: () => choose(one) }, nameOf(one))),
    el("td", { class: "n" }, excess(one.time_excess_pct)), el("td", { class: "n wide" }, excess(one.energy_excess_pct)),
    el("td", { class: "cause" }, el("strong", {}, one.cause), ". ", one.causes.map(({ text }) => text).join("; ") || "no signal differs", ": ", plain(one.action)),
    el("td", { class: "n" }, one.cost_per_month === null ? "–" : exact(one.cost_per_month, money(one.cost_per_month, one.currency))),
    isLinked ? el("td", {}, one.url ? el("a", { href: one.url, rel: "noreferrer", "aria-label": `page of ${one.host}` }, "page") : "–") : null);
  show(byId("outliers"), el("p", { class: "muted" }, notes), outliers.length
    ? el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of outliers" },
      el("table", {}, el("caption", { class: "unseen" }, "The most expensive first"),
        head(["GPU", "#Time", "#Energy~", "Cause, and what to do", "#A month", ...(isLinked ? ["Host"] : [])]), el("tbody", {}, shown.map(row))),
      more("outliers", outliers.length - shown.length, () => showOutliers(answer, choose)),
      left ? el("p", { class: "muted" }, `and ${plural(left, "more outlier")}: costprobe fleet outliers --csv`) : null) : null);
}
