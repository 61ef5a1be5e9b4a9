// The controls of the trend: each choice becomes a change of its state.

import { byId, el } from "./dom.js";
import { durationMs, isMoving, rangeWords } from "./trend_range.js";
import { DEFAULTS, searchOf } from "./url_state.js";

const FIELD = "trend-field";
const SELECTS = { "trend-scale": "scale", "trend-group": "group", "trend-device": "device", label: "label" };

/** Options of a choice, kept if unchanged and hidden if fewer; a chosen value that is not among them is added. */
function fillSelect(place, options, chosen, fewest) {
  const all = options.some(([value]) => value === chosen) ? options : [...options, [chosen, chosen]];
  const key = JSON.stringify(all);
  if (place.dataset.key !== key) {
    place.dataset.key = key;
    place.replaceChildren(...all.map(([value, text]) => el("option", { value }, text)));
  }
  place.value = chosen;
  place.closest("label").hidden = all.length <= fewest && chosen === "";
}

const two = (value) => String(value).padStart(2, "0");

/** A time as the value of an input of the type datetime-local. */
function inputTime(ms) {
  const at = new Date(ms);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}T${two(at.getHours())}:${two(at.getMinutes())}`;
}

export class TrendControls {
  /** onChange(change) is called with the changed parts of the state. */
  constructor(onChange) {
    this.choices = null;
    this.field = byId(FIELD);
    this.field.addEventListener("change", () => onChange(this.fieldChange()));
    for (const [id, name] of Object.entries(SELECTS)) {
      byId(id).addEventListener("change", () => onChange({ [name]: byId(id).value }));
    }
    byId("trend-model").addEventListener("change", () => {
      const [tag, ...name] = byId("trend-model").value.split("=");
      onChange({ probe: "", service: "", ...(tag ? { [tag]: name.join("=") } : {}) });
    });
    byId("range").addEventListener("change", (event) => onChange({ since: event.target.value, until: "" }));
    byId("trend-custom").addEventListener("submit", (event) => {
      event.preventDefault();
      const [since, until] = ["trend-since", "trend-until"].map((id) => new Date(byId(id).value).toISOString());
      onChange({ since, until, at: "" });
    });
    // On the click: the event `toggle` comes later, and would replace what was typed since.
    byId("trend-more").querySelector("summary").addEventListener("click", () => this.fillTimes());
  }

  /** Buttons that move the range: move(from, to) with shares of its length. */
  steps(move) {
    const button = (text, name, from, to) =>
      el("button", { type: "button", "aria-label": name, title: name, onclick: () => move(from, to) }, text);
    return [
      button("‹", "Earlier", -0.5, -0.5), button("›", "Later", 0.5, 0.5),
      button("+", "Zoom in", 0.25, -0.25), button("−", "Zoom out", -0.5, 0.5),
    ];
  }

  fieldChange() {
    const [field, basis = ""] = this.field.value.split("&basis=");
    return { field, basis, isFieldChosen: true };
  }

  fieldText() {
    return this.field.selectedOptions[0]?.textContent ?? this.field.value;
  }

  /** Show a state in the controls. */
  show(state) {
    const value = state.basis ? `${state.field}&basis=${state.basis}` : state.field;
    this.setOption(FIELD, value);
    this.setOption("trend-scale", state.scale);
    this.setOption("trend-group", state.group);
    for (const radio of document.querySelectorAll("input[name=range]")) {
      radio.checked = !state.until && radio.value === state.since;
    }
    byId("trend-linked").hidden = isMoving(state);
    byId("trend-linked").textContent = `${rangeWords(state)}; show the present`;
    byId("trend-linked").href = `/${searchOf({ ...state, since: DEFAULTS.since, until: "", at: "" })}`;
    this.state = state;
    if (this.choices) this.fill(this.choices, state);
    this.fillTimes();
  }

  setOption(id, value) {
    const place = byId(id);
    if (!Array.from(place.options).some((option) => option.value === value)) place.append(el("option", { value }, value));
    place.value = value;
  }

  fillTimes() {
    const [since, until] = [Date.parse(this.state.since), Date.parse(this.state.until)];
    byId("trend-since").value = inputTime(Number.isNaN(since) ? Date.now() - (durationMs(this.state.since) || 0) : since);
    byId("trend-until").value = inputTime(Number.isNaN(until) ? Date.now() : until);
  }

  /** Fill the choice of fields by heading; a chosen one that is not offered stays. */
  fillFields(groups) {
    const key = JSON.stringify(groups);
    if (this.field.dataset.key === key) return;
    this.field.dataset.key = key;
    const { value } = this.field;
    this.field.replaceChildren(...groups.map(([label, own]) => el("optgroup", { label }, own.map(([name, text]) => el("option", { value: name }, text)))));
    if (value) this.setOption(FIELD, value);
  }

  /** Offer what the newest rows of the host have: `choices` of `/api/now`. */
  fill(choices, state) {
    this.choices = choices;
    this.fillFields(choices.fields);
    const models = choices.models.map((model) => [model, model.split("=")[1]]);
    const chosen = state.probe ? `probe=${state.probe}` : state.service ? `service=${state.service}` : "";
    const same = (names) => names.map((name) => [name, name]);
    fillSelect(byId("trend-device"), [["", "all"], ...same(choices.devices)], state.device, 2);
    fillSelect(byId("trend-model"), [["", "all"], ...models], chosen, 2);
    fillSelect(byId("label"), [["", "all"], ...same(choices.labels)], state.label, 1);
    if (state.field.startsWith("device.")) byId("trend-model").closest("label").hidden = true;
  }
}
