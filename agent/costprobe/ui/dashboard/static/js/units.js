// The table of unit costs: a row for each model and service, with one for each device on demand.

import { changeText, costCell } from "./unit_cells.js";
import { byId, el, show } from "./dom.js";
import { joules, number, percent, plural, SPACE, span } from "./format.js";
import { presentMs } from "./freshness.js";
import { sparkline } from "./sparkline.js";

const WEEK_MS = 7 * 86_400_000;
// Without a new value for longer, a cost is not of now.
const STALE_S = 7200;
const ROWS_SHOWN = 9;
// A smaller spread is that of the measurement.
const LEAST_SPREAD = 0.005;

const open = new Set();
let isWhole = false;
let shown = null;

const keyOf = ({ tags }) => ["basis", "service", "served_model", "probe", "device", "currency", "batch", "concurrency"]
  .map((name) => tags[name] ?? "").join("\n");

const wide = (content, kind = "n") => el("td", { class: `${kind} wide` }, content);

function row(unit, name, where, kind = "") {
  const isOld = unit.age_s > STALE_S;
  const until = presentMs();
  const energy = unit.energy_j === null ? "–" : `${joules(unit.energy_j)}${unit.unit === "token" ? " / M" : ""}`;
  return el("tr", { class: [kind, isOld ? "old" : ""].filter(Boolean).join(" ") || null, "data-cost": [unit.name, unit.tags.device].filter(Boolean).join(" ") },
    el("th", { scope: "row" }, name, isOld ? el("small", { class: "bad" }, ` ${span(unit.age_s)} ago`) : null,
      unit.contended ? el("small", { class: "warn" }, " contended") : null),
    el("td", { class: "n cost" }, costCell(unit)),
    el("td", { class: "n" }, changeText(unit.change_24h_pct)),
    el("td", { class: "n" }, changeText(unit.change_7d_pct)),
    wide(sparkline(unit.trend, until - WEEK_MS, until), "s"),
    wide(unit.latency_ms === null ? "–" : `${number(unit.latency_ms, 3)} ms`),
    wide(energy),
    el("td", { class: "on" }, where));
}

/** The name, how it is measured, and for identical devices the button that shows each. */
function nameOf(unit, button = null) {
  const { tags } = unit;
  const name = tags.served_model ?? unit.name;
  const basis = tags.basis !== "serving" ? "probe" : tags.served_model ? `service ${tags.service}` : "service";
  return [el("span", { class: "name" }, name), " ",
    el("span", { class: "basis" }, tags.batch ? `${basis}, batch${SPACE}${tags.batch}` : basis, button ? [", ", button] : null)];
}

const namesOf = (devices) => (devices.length > 2 ? `${devices[0]} to ${devices.at(-1)}` : devices.join(", "));

function groupRows(group) {
  const key = keyOf(group);
  const { members, outliers } = group;
  if (members.length === 1) return [row(group, nameOf(group), namesOf(group.devices))];
  const isOpen = open.has(key);
  const toggle = () => {
    if (!open.delete(key)) open.add(key);
    draw();
  };
  const button = el("button", { type: "button", class: "expand", "aria-expanded": String(isOpen), onclick: toggle },
    plural(members.length, "device"), el("span", { "aria-hidden": "true" }, isOpen ? " ▾" : " ▸"));
  const spread = group.spread_share > LEAST_SPREAD ? `spread ${percent(group.spread_share)}` : "";
  const where = outliers.length === 0 ? [`${namesOf(members.map(({ tags }) => tags.device))} `, el("small", {}, spread)]
    : el("span", { class: "warn" }, outliers.length > 2 ? `${outliers.length} devices differ`
      : `${outliers.join(", ")} ${outliers.length === 1 ? "differs" : "differ"}`);
  const own = members.filter(({ tags }) => isOpen || outliers.includes(tags.device)).map((unit) => row(unit,
    el("span", { class: "member" }, unit.tags.device),
    outliers.includes(unit.tags.device) ? el("small", { class: "warn" }, `${percent(Math.abs(unit.cost / group.cost - 1))} ${unit.cost > group.cost ? "above" : "below"} the others`) : "",
    "of-group"));
  return [row(group, nameOf(group, button), where), ...own];
}

function draw() {
  const { units, label } = shown;
  const [name, ...value] = label.split("=");
  const selected = units.filter(({ members }) => !label || members.some(({ tags }) => tags[name] === value.join("=")));
  const visible = isWhole ? selected : selected.slice(0, ROWS_SHOWN);
  const head = (text, kind) => el("th", { scope: "col", class: kind }, text);
  const rest = selected.length - ROWS_SHOWN;
  show(byId("units"), selected.length === 0
    ? el("p", { class: "muted" }, label ? "No cost has this label." : "No probe and no service has a cost in the last 7 days.")
    : [el("table", { class: "units" },
      el("caption", { class: "unseen" }, "Cost of the last hour, against the same hour a day and a week before; identical devices are one row."),
      el("thead", {}, el("tr", {}, head("Model or service"), head("Cost now", "n"), head("24 h", "n"), head("7 d", "n"),
        head("Trend", "wide"), head(el("a", { href: "/static/timing.html", title: "Why our timing" }, "Latency"), "n wide"), head("Energy", "n wide"), head("On", "on"))),
      el("tbody", {}, visible.flatMap(groupRows))),
    rest > 0 ? el("button", { type: "button", class: "more", "aria-expanded": String(isWhole), onclick: () => { isWhole = !isWhole; draw(); } },
      isWhole ? "Show fewer" : `Show ${rest} more`) : null]);
}

/** Show the unit costs of the answer of `/api/overview`, or those with a label, such as "team=search". */
export function showUnits({ units }, label) {
  shown = { units, label };
  draw();
}
