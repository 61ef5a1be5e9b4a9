// The first line: spend an hour and this month, idle share, power, hosts, coverage; below it the largest deviation.

import { byId, el, show } from "../dom.js";
import { money, number, percent, plural, power, span } from "../format.js";
import { exact, monthTile, note, tile } from "../tiles.js";
import { changeText } from "../unit_cells.js";

const NAMED = 3;

const monthName = ({ period_start_ms: ms, timezone }) => new Intl.DateTimeFormat("en", { month: "long", timeZone: timezone }).format(new Date(ms));

function monthOf(month, currency) {
  const found = month.figures?.currencies.find((one) => one.currency === currency);
  if (!found) return tile("This month", month.figures ? "–" : "…", note("muted", month.figures ? "no spend in this currency" : "reading the hours so far"));
  return monthTile({ currency, month: { ...found, period: monthName(month.figures) } });
}

function currencyTiles(one, month) {
  const { currency, cost_per_h: perHour, idle_share: idle } = one;
  return [
    tile("Spend now", [exact(perHour, money(perHour, currency)), el("small", {}, " an hour")], note("muted", "hardware and electricity")),
    monthOf(month, currency),
    tile("Unused now", idle === null ? "–" : [exact(perHour * idle, money(perHour * idle, currency)), el("small", {}, " an hour")],
      note("muted", idle === null ? "utilization unknown" : `${percent(idle)} of the spend`)),
  ];
}

function hostsTile({ figures }) {
  if (!figures) return tile("Hosts", "…", note("muted", "asking"));
  const { hosts, silent, devices, faults, firing, silent_hosts: names } = figures;
  const others = names.length < silent || silent > NAMED ? `, and ${number(silent - Math.min(NAMED, names.length))} more` : "";
  const words = names.slice(0, NAMED).map(({ host, silent_s: silentS }) => `${host} for ${span(silentS)}`).join(", ");
  return tile("Hosts", [exact(hosts, number(hosts)), el("small", {}, " seen in 7 d")],
    silent ? note("bad", el("strong", {}, `${number(silent)} silent`), `: ${words}${others}`) : note("muted", "none silent"),
    note(firing ? "warn" : "muted", [plural(devices, "device"), firing ? `${number(firing)} firing` : "", faults ? plural(faults, "fault") : ""].filter(Boolean).join(", ")));
}

function powerTile(figures) {
  const { power_w: watts, energy_j: energy, carbon_g: carbon, carbon_share: known, costs } = figures;
  const hours = costs.length ? costs[0].cost / costs[0].cost_per_h : null;
  const kilograms = carbon === null || !hours ? "" : `, ${number(carbon / 1000 / hours, 3)} kg CO2e an hour`;
  return tile("Power", exact(watts ?? "", power(watts)),
    note("muted", energy === null ? "unknown" : `mean of the last hour${kilograms}${known !== null && known < 0.995 ? `, known of ${percent(known)}` : ""}`));
}

/** Show `now`, `month` and `status` of `/api/fleet`. */
export function showTotals({ now, month, status }) {
  byId("month-zone").textContent = month.figures?.timezone ?? "UTC";
  const { figures } = now;
  // The place of each figure is kept while it is asked for.
  const pending = ["Spend now", "This month", "Unused now", "Power"].map((name) => tile(name, "…", note("muted", now.error ? "no answer" : "asking the database")));
  const spend = !figures ? pending
    : figures.costs.length ? figures.costs.map((one) => currencyTiles(one, month))
      : [tile("Spend now", "–", note("bad", "no rows in the last hour: do the hosts push to the database of [fleet]?")), ...pending.slice(1, 3)];
  show(byId("spend-now"), spend, figures ? powerTile(figures) : null, hostsTile(status),
    tile("Coverage", exact(figures?.coverage ?? "", figures ? percent(figures.coverage) : "…"),
      note(figures && figures.coverage !== null && figures.coverage < 0.9 ? "warn" : "muted", "of the last hour has rows")));
}

/** What to do as a sentence, without the commands that show more. */
function sentenceOf(action) {
  const words = action.replace(/ \([^)]*`[^)]*\)/g, "").replaceAll("`", "");
  return `${words[0].toUpperCase()}${words.slice(1)}.`;
}

/** Words of a terminal without the marks of its commands. */
export const plain = (text) => text.replaceAll("`", "");
export const nameOf = ({ host, device }) => `${host} ${device ?? "all GPUs"}`;
// Time and energy differ together if a GPU is slower.
const LEAST_DIFFERENCE = 1;

/** The metric in which an outlier deviates most: "time" unless the energy deviates clearly more. */
const metricOf = ({ time_excess_pct: time, energy_excess_pct: energy }) =>
  (time !== null && (energy === null || time >= energy - LEAST_DIFFERENCE) ? "time" : "energy");

/** Show the most expensive outlier, else the model whose cost changed most; choose(outlier) selects it. */
export function showChange(map, units, choose) {
  const place = byId("change");
  const found = map?.figures;
  const [first] = found?.outliers ?? [];
  if (first) {
    place.className = "change worse";
    const more = found.outliers_total - 1;
    const costs = found.outliers_costs.map(({ currency, cost_per_month: cost }) => money(cost, currency)).join(" and ");
    const month = first.cost_per_month === null ? "" : ` About ${money(first.cost_per_month, first.currency, 2)} more a month.`;
    show(place,
      el("p", {},
        el("a", { href: "#gpu", onclick: (event) => { event.preventDefault(); choose(first); } }, nameOf(first)),
        " needs ", changeText(first[`${metricOf(first)}_excess_pct`]), ` more ${metricOf(first)} per inference than ${plural(first.peer_count, "peer")}: ${first.cause}. ${sentenceOf(first.action)}${month}`),
      more ? el("p", { class: "muted" }, el("a", { href: "#outliers-title" }, `${plural(more + 1, "outlier")} of ${plural(found.tested, "GPU")}${costs ? `, ${costs} a month` : ""}`)) : null);
    return;
  }
  place.className = "change calm";
  const moved = (units?.figures?.units ?? []).filter((one) => one.change_24h_pct !== null && Math.abs(one.change_24h_pct) >= 2)
    .sort((a, b) => Math.abs(b.change_24h_pct) - Math.abs(a.change_24h_pct))[0];
  const calm = found ? (found.tested ? `No outlier: none of ${plural(found.tested, "GPU")} is slower or hungrier than its peers.` : "No GPU has enough peers with probes to be compared.")
    : map?.error ? "GPUs are not compared: no answer yet." : "Comparing GPUs with their peers…";
  if (!moved) {
    show(place, el("p", {}, calm));
    return;
  }
  place.className = `change ${moved.change_24h_pct > 0 ? "worse" : "better"}`;
  show(place,
    el("p", {}, `${moved.model} costs `, changeText(moved.change_24h_pct), ` ${moved.change_24h_pct > 0 ? "more" : "less"} than in the same hour a day before.`),
    el("p", { class: "muted" }, calm));
}
