// The parts of each cost: hardware, electricity, idle time, tokens and energy with its method.

import { byId, el, show, table } from "./dom.js";
import { money, number, percent, scaleWords } from "./format.js";
import { priceScale } from "./scale.js";

const IDENTITY = ["basis", "device", "probe", "service", "served_model", "currency"];
const SPLITS = { measured: "device time", calibrated: "calibration", weights: "token weights" };

function energyText(fields, value) {
  if (!Number.isFinite(value)) return "–";
  const method = String(fields.energy_method ?? "").replaceAll("_", " ");
  const error = Number.isFinite(fields.energy_rel_err) ? ` ±${percent(fields.energy_rel_err)}` : "";
  return `${number(value, 3)} J${method || error ? ` (${method}${error})` : ""}`;
}

function rowOf({ tags, fields }, probe, units) {
  const isServing = tags.basis === "serving";
  // The scale of the first screen.
  const unit = units.find((one) => one.unit !== "token" && IDENTITY.every((tag) => one.tags[tag] === tags[tag]));
  const scale = unit?.scale_samples ?? priceScale(fields.cost_per_inference);
  const price = (value) => (Number.isFinite(value) ? money(value * scale, tags.currency) : "–");
  const tokens = ["in", "fresh", "cached", "out"].map((way) => {
    const [amount, energy] = [fields[`cost_per_million_tokens_${way}`], fields[`energy_per_million_tokens_${way}_j`]];
    if (way === "fresh" && !fields.cached_tokens) return "–";
    const free = way === "cached" && amount === 0 ? " (no weight measured)" : "";
    return [Number.isFinite(amount) ? money(amount, tags.currency) + free : "", Number.isFinite(energy) ? `${number(energy)} J` : ""]
      .filter(Boolean).join(", ") || "–";
  });
  const electricity = Number.isFinite(fields.cost_energy) ? price(fields.cost_energy) : "in the price";
  const energy = isServing ? fields.energy_per_request_j : probe?.fields.energy_per_inference_j;
  return [
    [[tags.probe ?? tags.service, tags.served_model].filter(Boolean).join("/"), tags.device].filter(Boolean).join(" on "),
    scaleWords(scale, "inference"), price(fields.cost_per_inference), price(fields.cost_hardware), electricity,
    Number.isFinite(fields.idle_share) ? percent(fields.idle_share) : "–",
    ...["1h", "24h", "7d"].map((name) => price(fields[`rolling_${name}`])),
    ...tokens, fields.cached_share ? percent(fields.cached_share) : "–",
    Number.isFinite(fields.cost_cache_saved) ? money(fields.cost_cache_saved, tags.currency) : "–", SPLITS[fields.token_split] ?? fields.token_split ?? "–",
    energyText(isServing ? fields : probe?.fields ?? {}, energy), String(tags.plan ?? "").replaceAll("_", " "),
  ];
}

/** Show the parts of the costs of `/api/now`, or of those with a label, such as "team=search"; units: of `/api/overview`. */
export function showParts(now, label, units) {
  const members = units.flatMap((group) => group.members);
  const [name, ...value] = label.split("=");
  const probes = new Map(now.probes.map((probe) => [`${probe.tags.device}\n${probe.tags.probe}`, probe]));
  const rows = now.costs.filter(({ tags }) => !label || tags[name] === value.join("="))
    .map((cost) => rowOf(cost, probes.get(`${cost.tags.device}\n${cost.tags.probe}`), members));
  const heads = ["Series", "Per", "#Cost", "#Hardware", "#Electricity", "#Idle share", "#1 h", "#24 h", "#7 d",
    "#M tokens in", "#M fresh in", "#M cached in", "#M tokens out", "#In cached", "#Cache saved", "Tokens split by", "#Energy each", "Price plan"];
  // Columns that no cost has are left out.
  const used = heads.map((_, index) => index === 0 || rows.some((row) => row[index] !== "–" && row[index] !== ""));
  const kept = (cells) => cells.filter((_, index) => used[index]);
  show(byId("parts"), rows.length === 0 ? el("p", { class: "muted" }, "No cost in the last 7 days.")
    : el("div", { class: "scroll card", tabindex: 0, role: "region", "aria-label": "Table of parts" },
      table("The newest cost; 1 h, 24 h and 7 d: median of probes, mean of services.", kept(heads), rows.map(kept))));
}
