// What the trend shows, as the query of the page's address: a link and the back button restore it.
// Values are not trusted: the server checks them, and its answer to an invalid one is shown in the chart.

export const DEFAULTS = {
  field: "cost.cost_reference", basis: "", since: "24h", until: "", at: "", scale: "auto", group: "model",
  device: "", probe: "", service: "", label: "",
};
const LINES_MAX = 60;
const LINE_CHARS_MAX = 400;

/** The state of an address; `lines` are the chosen lines, null for the default ones. */
export function readState(search) {
  const query = new URLSearchParams(search);
  const state = Object.fromEntries(Object.entries(DEFAULTS).map(([name, value]) => [name, query.get(name) ?? value]));
  if (!query.has("field")) state.basis = query.get("basis") ?? "probe";
  const lines = query.getAll("line").slice(0, LINES_MAX).map((line) => line.slice(0, LINE_CHARS_MAX));
  return { ...state, lines: lines.length ? lines : null, isFieldChosen: query.has("field") };
}

/** The query of a state, "" for the default one. */
export function searchOf(state) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(DEFAULTS)) {
    if (name !== "field" && name !== "basis" && state[name] !== value) query.set(name, state[name]);
  }
  if (state.isFieldChosen) {
    query.set("field", state.field);
    if (state.basis) query.set("basis", state.basis);
  }
  for (const line of state.lines ?? []) query.append("line", line);
  const text = query.toString();
  return text ? `?${text}` : "";
}

/** Make a state the page's address; a new entry of the history, unless it only refines the last. */
export function writeState(state, isNew) {
  const address = location.pathname + searchOf(state);
  if (address === location.pathname + location.search) return;
  if (isNew) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
}
