// The selected GPU: its deviation with the cause, what it cost, and the page of its host.

import { byId, el, show } from "../dom.js";
import { joules, money, number, percent, span } from "../format.js";
import { changeText, costCell } from "../unit_cells.js";
import { plain } from "./totals.js";

const PER_MILLION = 1_000_000;

const interval = (one, metric) => (one[`${metric}_excess_pct`] === null ? null
  : [el("dt", {}, `${metric} per inference`), el("dd", {}, changeText(one[`${metric}_excess_pct`]),
    el("small", { class: "muted" }, ` ${number(one[`${metric}_excess_low_pct`], 2)} to ${number(one[`${metric}_excess_high_pct`], 2)} %`))]);

function causeOf(one) {
  const cost = one.cost_per_month === null ? ""
    : `${money(one.cost_per_month, one.currency)} a month at the present use (${money(one.cost_low_per_month, one.currency)} to ${money(one.cost_high_per_month, one.currency)})`;
  return [
    el("p", {}, el("strong", {}, `Cause: ${one.cause}`), `. ${one.causes.map(({ text }) => text).join("; ") || "no signal differs"}: ${plain(one.action)}`),
    el("dl", {}, interval(one, "time"), interval(one, "energy"), cost ? [el("dt", {}, "excess cost"), el("dd", {}, cost)] : null,
      el("dt", {}, "compared with"), el("dd", {}, `${number(one.peer_count)} of ${one.peers.filter(Boolean).join(", ")}`))];
}

function figuresOf({ figures, error }) {
  if (!figures) return el("p", { class: "muted" }, error ? `No figures: ${error}` : "Asking for its cost…");
  const { total, models } = figures;
  const row = (name, ...words) => [el("dt", {}, name), el("dd", {}, words)];
  return el("dl", {},
    total.costs.map((one) => row("cost, 24 h", money(one.cost, one.currency), one.idle_share === null ? "" : `, idle ${percent(one.idle_share)}`)),
    total.energy_j === null ? null : row("energy, 24 h", joules(total.energy_j)),
    total.coverage === null ? null : row("covered", percent(total.coverage)),
    models.filter((one) => one.basis === "probe" && one.cost_per_inference !== null).map((one) =>
      row(one.model, costCell({ cost: one.cost_per_inference, scale_samples: PER_MILLION, unit: "inference", tags: { currency: one.currency } }))));
}

/** Show the selected GPU: its cell, the outlier it belongs to, and the answer of `/api/gpu`; any may be missing. */
export function showDetail({ host, device, row, outlier, answer, close }) {
  if (!host) {
    show(byId("gpu"));
    return;
  }
  const url = answer?.url ?? outlier?.url;
  const cell = row?.cells.find((one) => one?.[0] === device);
  const silent = row?.silent_s;
  show(byId("gpu"), el("div", { class: "card" },
    el("h3", {}, el("span", {}, `${host} ${device || "all GPUs"}`), el("button", { type: "button", class: "expand", onclick: close }, "Close")),
    silent ? el("p", { class: "bad" }, `The host has been silent for ${span(silent)}.`) : null,
    outlier ? causeOf(outlier)
      : cell ? el("p", {}, cell[1] === null ? "Not compared: too few runs or peers, or its software or model changed in the last 7 days." : ["Deviation from its peers: ", changeText(cell[1]), ". It is no outlier."])
        : null,
    device && answer ? figuresOf(answer) : null,
    url ? el("p", {}, el("a", { href: url, rel: "noreferrer" }, `Page of ${host}`)) : null));
}
