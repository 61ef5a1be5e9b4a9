// What the page shows, as the query of its address: a link and the back button restore it.
// Values are not trusted: the server checks them.

export const DEFAULTS = {
  label: "", by: "gpu_model", metric: "time", order: "worst", group: "", within: "", model: "", shown: "", host: "", device: "",
};

export function readAddress() {
  const query = new URLSearchParams(location.search);
  return Object.fromEntries(Object.entries(DEFAULTS).map(([name, value]) => [name, query.get(name) ?? value]));
}

export function writeAddress(state) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(DEFAULTS)) if (state[name] !== value) query.set(name, state[name]);
  const text = query.toString();
  const address = location.pathname + (text ? `?${text}` : "");
  if (address !== location.pathname + location.search) history.pushState(null, "", address);
}

/** A path of the API with the parameters that are given. */
export function pathOf(path, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "");
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}
