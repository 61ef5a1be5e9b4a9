// Numbers under the pointer and times in the zone of the page; all other texts are formatted by the server.

const DAY_S = 86400;

const digits = new Intl.NumberFormat("en-US", { minimumSignificantDigits: 3, maximumSignificantDigits: 3, roundingMode: "halfEven" });

/** A number with three digits between the `before` and `after` that the server gives: "$0.00158", "12.3 CHF", "-$5.00". */
export const amount = (value, { before = "", after = "" }) => `${value < 0 ? "-" : ""}${before}${value ? digits.format(Math.abs(value)) : 0}${after}`;

const changes = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1, signDisplay: "exceptZero" });

/** A change in percent: "+8.4 %", "0 %". */
export const signed = (pct) => `${changes.format(pct)} %`;

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
function when(ms) {
  const [day, clock] = moment(ms).split(" ");
  return day === moment(nowMs).split(" ")[0] ? clock.slice(0, 5) : `${day} ${clock.slice(0, 5)}`;
}

const UTC_TIME = /(\d{4}-\d\d-\d\d) (\d\d:\d\d) UTC/g;

/** A text with its times in the zone of the page. */
export const localTimes = (text) => text.replace(UTC_TIME, (_, day, clock) => when(Date.parse(`${day}T${clock}:00Z`)));
