// The largest change with its cause, and what is firing.

import { changeText } from "./unit_cells.js";
import { byId, el, show } from "./dom.js";
import { localTimes, money, plural, when } from "./format.js";
import { presentMs } from "./freshness.js";

const SHOWN = 4;
const KINDS = { critical: "bad", warning: "warn" };

const subjectOf = (tags) => {
  const name = [tags.service ?? tags.probe, tags.served_model].filter(Boolean).join("/");
  return [name, tags.device].filter(Boolean).join(" on ") || "the host";
};

/** A probe has no bill: its change is worth a part of its device. */
function monthText(amount, isLess, { currency, tags }) {
  return tags.probe ? `worth about ${money(amount, currency)} a month of a fully used device`
    : `about ${money(amount, currency)} ${isLess ? "less" : "more"} a month`;
}

/** Show the largest change of the answer of `/api/overview`. */
export function showChange({ change }) {
  const place = byId("change");
  place.hidden = false;
  if (!change) {
    place.className = "change calm";
    show(place, el("p", {}, "No lasting change in the last 7 days."));
    return;
  }
  const nowMs = presentMs();
  const text = (words) => localTimes(words, change.since_ms, nowMs);
  const { change_pct: pct, cost_per_month: perMonth } = change;
  const isWorse = pct !== null && (change.tags.metric === "throughput" ? pct < 0 : pct > 0);
  place.className = `change ${isWorse ? "worse" : "better"}`;
  const more = change.left_out ? `, and ${plural(change.left_out, "other series", "other series")}` : "";
  show(place,
    el("p", { class: "headline" },
      pct === null ? [el("strong", {}, text(change.title)), ` since ${when(change.since_ms, nowMs)}${more}`]
        : [el("strong", {}, changeText(pct)), ` ${subjectOf(change.tags)} since ${when(change.since_ms, nowMs)}${more}`],
      perMonth === null ? null
        : el("span", { class: "month" }, monthText(Math.abs(perMonth), perMonth < 0, change))),
    el("p", { class: "reason", title: text(change.title) }, text(change.detail || (change.cause ? `cause: ${change.cause}` : change.title))));
}

/** The labels of an incident, such as "device=gpu0 team=search". */
export function labelText(labels) {
  return Object.entries(labels ?? {}).map(([name, value]) => `${name}=${value}`).join(" ");
}

function alertEntry(alert) {
  const nowMs = presentMs();
  const text = (words) => localTimes(words, alert.since_ms, nowMs);
  const notes = [alert.state === "firing" ? null : alert.state, alert.silenced && "silenced", alert.flapping && "flapping",
    labelText(alert.labels)].filter(Boolean);
  const more = alert.symptoms_left_out ? [`and ${alert.symptoms_left_out} more`] : [];
  const symptoms = alert.symptoms.length > 1 ? [...alert.symptoms, ...more] : [];
  return el("details", { class: `note ${alert.silenced ? "" : KINDS[alert.severity] ?? "good"}`, "data-key": alert.id },
    el("summary", {}, el("strong", {}, `${alert.name}, ${alert.severity}`), ` since ${when(alert.since_ms, nowMs)}`,
      el("span", { class: "line" }, text(alert.summary))),
    alert.detail || alert.cause ? el("p", {}, text(alert.detail || `Cause: ${alert.cause}`)) : null,
    symptoms.length ? el("ul", {}, symptoms.map((words) => el("li", {}, text(words)))) : null,
    el("p", { class: "muted" }, notes.join(", ")));
}

function faultEntry(fault) {
  return el("div", { class: `note ${fault.name === "not_running" ? "bad" : KINDS[fault.severity] ?? "good"}` },
    el("strong", {}, `fault: ${fault.name.replaceAll("_", " ")}`), el("span", { class: "line" }, fault.text));
}

/** Show the alerts and faults of `/api/now`, the worst first. */
export function showFiring(now) {
  const place = byId("firing");
  const isQuiet = (alert) => Number(alert.silenced || alert.state !== "firing");
  const alerts = [...now.alerts].sort((a, b) => isQuiet(a) - isQuiet(b) || b.since_ms - a.since_ms);
  // Without the daemon nothing else is known.
  const dead = now.faults.filter(({ name }) => name === "not_running");
  const faults = now.faults.filter((fault) => !dead.includes(fault));
  const entries = [...dead.map(faultEntry), ...alerts.map(alertEntry), ...faults.map(faultEntry)];
  const rest = entries.slice(SHOWN);
  const hidden = now.hidden_changes.map((words) => el("p", { class: "muted" }, words));
  show(place, entries.length ? entries.slice(0, SHOWN) : el("p", { class: "note good" }, "No alert is firing and no fault is active."),
    hidden,
    rest.length ? el("details", { "data-key": "rest" }, el("summary", {}, `${rest.length} more`), rest) : null);
}
