// Numbers, money and times in the format of the command line.

const SIGNS = { USD: "$", EUR: "€", GBP: "£" };
const PER_THOUSAND = 1000;
const DAY_S = 86400;
// A number and its unit stay on one line.
export const SPACE = "\u00a0";

const isKnown = (value) => value !== null && value !== undefined && Number.isFinite(value);

/** Significant digits with thousands separators. */
function decimal(value, digits) {
  return new Intl.NumberFormat("en-US", { maximumSignificantDigits: digits, roundingMode: "halfEven" }).format(value);
}

/** Three significant digits, with an exponent only for extreme values. */
export function number(value, digits = 3) {
  if (!isKnown(value)) return "–";
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-9 || size >= 1e12) ? value.toExponential(digits - 1) : decimal(value, digits);
}

/** An amount with its currency, as ui/amounts.py writes it: "$0.00158", "12.3 CHF", "-$5". */
export function money(amount, currency, digits = 3) {
  if (!isKnown(amount)) return "–";
  const sign = SIGNS[currency];
  const text = `${sign ?? ""}${decimal(Math.abs(amount), digits)}`;
  return `${amount < 0 ? "-" : ""}${text}${sign ? "" : ` ${currency ?? ""}`}`.trimEnd();
}

// Amounts for one inference or request, which are written for 1,000.
const EACH = /^(cost|sweep)\.(cost_(per_inference|hardware|energy|reference|per_request)|rolling_(1h|24h|7d)(_iqr)?)$/;
const AMOUNTS = /\.(cost|cost_\w+|price_rate_per_h|amount|spent|forecast(_low|_high)?)$/;

/** Whether a field, such as "cost.cost_total", is money, and the factor that it is written with. */
export function moneyOf(field) {
  const isEach = EACH.test(field);
  return { isMoney: isEach || AMOUNTS.test(field), factor: isEach ? PER_THOUSAND : 1 };
}

export function percent(share) {
  return share === null || share === undefined ? "–" : `${number(share * 100, 3)}${SPACE}%`;
}

/** A duration: "12 s", "3 min", "2 h", "4.0 d". */
export function span(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
  return `${(seconds / 86400).toFixed(1)} d`;
}

const two = (value) => String(value).padStart(2, "0");

/** Local time of the browser in a sortable format. */
export function moment(ms) {
  const at = new Date(ms);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

// Tags that distinguish series; other tags are the same on most hosts.
const IDENTITY = ["device", "probe", "service", "served_model"];
const DISTINGUISHING = [...IDENTITY, "batch", "concurrency", "basis", "plan", "currency"];

/** A name for each series from its tags, without those that all have in common; names are distinct. */
export function seriesNames(series) {
  const differs = (tag) => new Set(series.map((tags) => tags[tag] ?? "")).size > 1;
  const shown = DISTINGUISHING.filter((tag) => IDENTITY.includes(tag) || differs(tag));
  const word = (tags, tag) => (tag === "batch" ? `batch ${tags.batch}` : tags[tag]);
  const named = (tags, own) => own.filter((tag) => tags[tag]).map((tag) => word(tags, tag)).join(" ") || "all";
  const names = series.map((tags) => named(tags, shown));
  if (new Set(names).size === names.length) return names;
  // Tags that only some hosts have, such as labels.
  const others = [...new Set(series.flatMap(Object.keys))].filter((tag) => !shown.includes(tag) && differs(tag)).sort();
  return series.map((tags) =>
    [named(tags, shown), ...others.filter((tag) => tags[tag]).map((tag) => `${tag}=${tags[tag]}`)].join(" "));
}

/** Labels of a time axis: the time, and the date where it changes. */
export function axisMoments(splits, step_s) {
  let last = "";
  return splits.map((seconds) => {
    const [date, clock] = moment(seconds * 1000).split(" ");
    const [words, more] = step_s >= DAY_S ? [date.slice(5), date.slice(0, 4)]
      : [step_s < 60 ? clock : clock.slice(0, 5), date.slice(5)];
    const isNew = more !== last;
    last = more;
    return isNew ? `${words}\n${more}` : words;
  });
}

/** The name of the time zone of all times on the page: "Europe/Berlin". */
export const zone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

let nowMs = Date.now();
/** Take the present time of the host, against which times are written. */
export const setNow = (ms) => { nowMs = ms; };

/** A time today as "14:05", else with its date, in the zone of the page. */
export function when(ms) {
  const [day, clock] = moment(ms).split(" ");
  return day === moment(nowMs).split(" ")[0] ? clock.slice(0, 5) : `${day} ${clock.slice(0, 5)}`;
}

const UTC_TIME = /(\d{4}-\d\d-\d\d) (\d\d:\d\d) UTC/g;

/** A text with its times in the zone of the page. */
export const localTimes = (text) => text.replace(UTC_TIME, (_, day, clock) => when(Date.parse(`${day}T${clock}:00Z`)));

export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

const SCALE_WORDS = { 1: "", 1000: "1,000 ", 1000000: "M " };

/** What a unit price is divided by: "M inferences", "request". */
export function scaleWords(scale, unit) {
  const [one, many] = unit === "token" ? ["token out", "tokens out"] : [unit, `${unit}s`];
  return `${SCALE_WORDS[scale] ?? `${number(scale)} `}${scale === 1 ? one : many}`;
}

const CHANGES = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });

/** The size of a change in percent: "8.4 %", "120 %". */
export const changeSize = (pct) => `${CHANGES.format(Math.abs(pct) >= 100 ? Math.round(Math.abs(pct)) : Math.abs(pct))}${SPACE}%`;

/** A value with the prefix of its unit that leaves at most four digits before the point. */
function prefixed(value, unit) {
  if (!isKnown(value)) return "–";
  const [factor, prefix] = [[1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([limit]) => Math.abs(value) >= limit) ?? [1, ""];
  return `${number(value / factor, 3)}${SPACE}${prefix}${unit}`;
}

/** A power: "2.5 kW". */
export const power = (watts) => prefixed(watts, "W");

/** An energy: "0.231 J", "327 kJ". */
export const joules = (value) => prefixed(value, "J");
