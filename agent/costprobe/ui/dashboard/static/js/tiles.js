// Cards of the current costs, devices, alerts and faults.

import { bar, byId, el, show, table } from "./dom.js";
import { bytes, moment, money, number, PER_THOUSAND, percent, span } from "./format.js";

const STALE_S = 1800;
const SENSOR_STALE_S = 120;

const pair = (name, value) => [el("dt", {}, name), el("dd", {}, value)];
const factList = (facts) => (facts.length ? el("dl", {}, facts) : null);
const exact = (value, text) => el("data", { value: String(value) }, text);

export function showHeader(now) {
  const { daemon } = now;
  byId("host").textContent = daemon.host ?? "";
  document.title = daemon.host ? `costprobe ${daemon.host}` : "costprobe";
  const place = byId("daemon");
  place.className = daemon.running ? "muted" : "bad";
  place.textContent = daemon.running
    ? `daemon ${daemon.version} running since ${moment(daemon.started_ms)}`
    : daemon.age_s === undefined
      ? `the daemon ${daemon.state}`
      : `the daemon is not running; last seen ${span(daemon.age_s)} ago`;
}

function kindOf(severity) {
  return { critical: "bad", warning: "warn" }[severity] ?? "good";
}

/** The labels of an incident, such as "device=gpu0 team=search". */
export function labelText(labels) {
  return Object.entries(labels ?? {}).map(([name, value]) => `${name}=${value}`).join(" ");
}

function alertNote(alert) {
  const notes = [labelText(alert.labels), `since ${moment(alert.since_ms)}`].filter(Boolean);
  if (alert.silenced) notes.push("silenced");
  if (alert.flapping) notes.push("flapping");
  const more = alert.symptoms_left_out ? [`and ${alert.symptoms_left_out} more`] : [];
  const symptoms = alert.symptoms.length > 1 ? [...alert.symptoms, ...more] : [];
  return el("div", { class: `note ${kindOf(alert.severity)}` },
    el("h3", {}, `${alert.state}, ${alert.severity}: ${alert.name}`),
    el("p", {}, alert.summary),
    alert.detail || alert.cause ? el("p", {}, alert.detail || `Cause: ${alert.cause}`) : null,
    symptoms.length ? el("ul", {}, symptoms.map((text) => el("li", {}, text))) : null,
    el("p", { class: "muted" }, notes.join(", ")));
}

export function showWrong(now) {
  const faults = now.faults.map((fault) =>
    el("div", { class: `note ${kindOf(fault.severity)}` },
      el("h3", {}, `fault: ${fault.name.replaceAll("_", " ")}`), el("p", {}, fault.text)));
  const notes = [...now.alerts.map(alertNote), ...faults];
  show(byId("wrong"), notes.length ? notes : el("p", { class: "note good" }, "No alert is firing and no fault is active."));
}

function splitOf(fields) {
  const parts = [["hardware", fields.cost_hardware], ["energy", fields.cost_energy]]
    .filter(([, amount]) => Number.isFinite(amount));
  const whole = parts.reduce((sum, [, amount]) => sum + amount, 0);
  return whole > 0 ? parts.map(([kind, amount]) => [kind, amount / whole, amount]) : [];
}

const WORDS = { hardware: "hardware", energy: "electricity" };
const SPLITS = { measured: "device time", weights: "token weights" };

function energyText(fields, value) {
  const method = String(fields.energy_method ?? "").replaceAll("_", " ");
  const error = Number.isFinite(fields.energy_rel_err) ? ` ±${percent(fields.energy_rel_err)}` : "";
  return `${number(value, 3)} J (${method}${error})`;
}

function costCard(cost, probe) {
  const { tags, fields } = cost;
  const unit = probe?.tags.concurrency ? "requests" : "inferences";
  const perThousand = (value) => exact(value, money(value * PER_THOUSAND, tags.currency));
  const split = splitOf(fields);
  const facts = split.map(([kind, share, amount]) => [
    el("dt", { class: `key ${kind}` }, WORDS[kind]),
    el("dd", {}, perThousand(amount), ` (${percent(share)})`)]);
  if (split.length && !split.some(([kind]) => kind === "energy")) facts.push(pair("electricity", "included in the price"));
  const idle = Number.isFinite(fields.idle_share) ? fields.idle_share : null;
  if (idle !== null) {
    facts.push([el("dt", { class: "key idle" }, "idle time"),
      el("dd", {}, perThousand(fields.cost_per_inference * idle), ` (${percent(idle)})`)]);
  }
  for (const name of ["1h", "24h", "7d"]) {
    const value = fields[`rolling_${name}`];
    if (!Number.isFinite(value)) continue;
    const covered = fields[`rolling_${name}_coverage`];
    const note = covered < 0.5 ? ` (${percent(covered)} covered)` : "";
    // On the serving basis it is total cost divided by total served inferences.
    const word = tags.basis === "serving" ? "mean of" : "median of";
    facts.push([el("dt", {}, `${word} ${name}`), el("dd", {}, perThousand(value), note)]);
  }
  for (const [way, words] of [["in", "input"], ["out", "output"]]) {
    const [amount, energy] = [fields[`cost_per_million_tokens_${way}`], fields[`energy_per_million_tokens_${way}_j`]];
    const texts = [];
    if (Number.isFinite(amount)) texts.push(money(amount, tags.currency));
    if (Number.isFinite(energy)) texts.push(`${number(energy)} J`);
    if (texts.length) facts.push(pair(`per million ${words} tokens`, texts.join(", ")));
  }
  if (fields.token_split) facts.push(pair("tokens split by", SPLITS[fields.token_split] ?? fields.token_split));
  if (Number.isFinite(fields.energy_per_request_j)) {
    facts.push(pair("energy per request", energyText(fields, fields.energy_per_request_j)));
  }
  const subject = [tags.probe ?? tags.service, tags.served_model].filter(Boolean).join("/");
  const name = [tags.device, subject].filter(Boolean).join(" ");
  return el("article", { class: "card", "data-cost": name },
    el("h3", {}, name),
    el("p", { class: "big" }, perThousand(fields.cost_per_inference), el("small", {}, ` per 1,000 ${unit}`)),
    split.length ? bar(split) : null,
    idle === null ? null : bar([["busy", 1 - idle], ["idle", idle]]),
    factList([...facts, ...probeFacts(probe)]),
    el("p", { class: cost.age_s > STALE_S ? "bad" : "muted" },
      `${String(tags.plan ?? "").replaceAll("_", " ")} price, measured ${moment(cost.time_ms)}`));
}

function probeFacts(probe) {
  if (!probe) return [];
  const { fields, tags } = probe;
  const facts = [];
  if (tags.batch) facts.push(pair("batch", tags.batch));
  if (tags.concurrency) facts.push(pair("concurrency", tags.concurrency));
  if (Number.isFinite(fields.latency_p50_ms)) facts.push(pair("latency p50", `${number(fields.latency_p50_ms)} ms`));
  if (Number.isFinite(fields.throughput_per_s)) facts.push(pair("throughput", `${number(fields.throughput_per_s)} /s`));
  if (Number.isFinite(fields.energy_per_inference_j)) {
    facts.push(pair("energy per inference", energyText(fields, fields.energy_per_inference_j)));
  }
  const notes = [];
  if (fields.contended) notes.push("contended");
  if (fields.throttled_pct > 1) notes.push(`throttled ${number(fields.throttled_pct, 3)} %`);
  if (notes.length) facts.push(pair("note", notes.join(", ")));
  return facts;
}

/** The cards of all costs, or of those with a label, such as "team=search". */
export function showCosts(now, label) {
  const [name, ...value] = label.split("=");
  const isShown = ({ tags }) => !label || tags[name] === value.join("=");
  const probeOf = (cost) => now.probes.find((probe) =>
    probe.tags.device === cost.tags.device && probe.tags.probe === cost.tags.probe && cost.tags.probe);
  const cards = now.costs.filter(isShown).map((cost) => costCard(cost, probeOf(cost)));
  const priced = new Set(now.costs.map((cost) => `${cost.tags.device} ${cost.tags.probe}`));
  const unpriced = now.probes.filter((probe) => isShown(probe) && !priced.has(`${probe.tags.device} ${probe.tags.probe}`));
  cards.push(...unpriced.map((probe) => el("article", { class: "card" },
    el("h3", {}, `${probe.tags.device} ${probe.tags.probe}`),
    el("p", {}, "no cost: no price, or electricity is billed separately and the energy is unknown"),
    factList(probeFacts(probe)))));
  show(byId("costs"), cards.length ? cards
    : el("p", { class: "muted" }, "No probe has run in the last 7 days."));
}

function deviceCard(device) {
  const { tags, fields } = device;
  const facts = [];
  const add = (name, key, unit, digits = 3) => {
    if (Number.isFinite(fields[key])) facts.push(pair(name, `${number(fields[key], digits)} ${unit}`));
  };
  if (Number.isFinite(fields.power_w)) {
    const most = Number.isFinite(fields.power_max_w) ? ` (max ${number(fields.power_max_w, 3)} W)` : "";
    facts.push(pair("power", `${number(fields.power_w, 3)} W${most}`));
  }
  add("utilization", "util_pct", "%");
  add("SM clock", "sm_clock_mhz", "MHz", 4);
  add("memory clock", "mem_clock_mhz", "MHz", 5);
  add("power limit", "power_limit_w", "W");
  add("temperature", "temp_c", "°C");
  for (const [name, key] of [["thermal", "throttle_thermal_s"], ["power", "throttle_power_s"]]) {
    if (!Number.isFinite(fields[key])) continue;
    const isThrottled = fields[key] > 0;
    facts.push([el("dt", {}, `${name} throttling`),
      el("dd", { class: isThrottled ? "warn" : null }, isThrottled ? `${number(fields[key], 3)} s per sample` : "no")]);
  }
  if (Number.isFinite(fields.mem_used_bytes)) {
    facts.push(pair("memory", `${bytes(fields.mem_used_bytes)} of ${bytes(fields.mem_total_bytes)}`));
  }
  if (fields.ecc_uncorrected > 0) facts.push(pair("memory errors", number(fields.ecc_uncorrected)));
  add("processes", "processes", "");
  if (Number.isFinite(fields.price_rate_per_h)) {
    facts.push(pair("price", `${money(fields.price_rate_per_h, tags.currency)} per hour`));
  }
  const isOld = device.age_s > SENSOR_STALE_S;
  return el("article", { class: "card", "data-device": tags.device },
    el("h3", {}, tags.device), el("p", { class: "muted" }, tags.model ?? ""),
    factList(facts),
    isOld ? el("p", { class: "bad" }, `no reading since ${moment(device.time_ms)}`) : null);
}

export function showDevices(now) {
  show(byId("devices"), now.devices.length ? now.devices.map(deviceCard)
    : el("p", { class: "muted" }, "No device reading in the last 7 days."));
}

export function showSpend(spend, now) {
  // Rows without a currency tag use the currency of the device's cost rows.
  const currencyOf = (tags) => tags.currency
    ?? now?.costs.find((cost) => cost.tags.device === tags.device)?.tags.currency ?? "";
  const rows = spend.devices.map((entry) => {
    const { cost, coverage, idle_share: idle, tags } = entry;
    const currency = currencyOf(tags);
    const isKnown = idle !== null;
    return [tags.device, exact(cost, money(cost, currency)), percent(coverage),
      isKnown ? money(cost * (1 - idle), currency) : "–", isKnown ? money(cost * idle, currency) : "–",
      isKnown ? percent(idle) : "unknown",
      isKnown ? bar([["busy", 1 - idle], ["idle", idle]]) : ""];
  });
  if (!rows.length) {
    show(byId("spend"), el("p", { class: "muted" }, "No device had a price in the last 24 hours."));
    return;
  }
  const scrolled = (name, content) =>
    el("div", { class: "scroll card", tabindex: 0, role: "region", "aria-label": name }, content);
  const labelled = spend.labels.map(({ label, value, currency, cost }) =>
    [label, value ?? "none", exact(cost, money(cost, currency === "?" ? currencyOf({}) : currency))]);
  show(byId("spend"),
    scrolled("Cost of each device", table(
      `Last 24 h, hardware and electricity; idle cost: utilization below ${spend.idle_below_pct} %.`,
      ["Device", "#Cost", "#Covered", "#While busy", "#While idle", "#Idle share", "Busy and idle"], rows)),
    labelled.length ? scrolled("Cost of each label", table(
      "Last 24 h, divided by each label of services, probes and hosts; none: without the label.",
      ["Label", "Value", "#Cost"], labelled)) : null);
}
