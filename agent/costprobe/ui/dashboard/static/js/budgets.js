// Budgets: amount, spend and forecast.

import { byId, el, show, strip, svg } from "./dom.js";
import { moment, money, number, percent } from "./format.js";

const exact = (value, text) => el("data", { value: String(value) }, text);
const TICK = 0.8;

/** Spend, forecast with interval, and amount, on one scale. */
function budgetBar(budget) {
  const { amount, spent, forecast, forecast_low: low, forecast_high: high } = budget;
  const most = Math.max(amount, spent, high ?? 0) * 1.02;
  const at = (value) => (value / most) * 100;
  const part = (kind, from, to) => svg("rect", { class: kind, x: from, y: 0, width: Math.max(0, to - from), height: 10 });
  const tick = (kind, value) => part(kind, at(value) - TICK / 2, at(value) + TICK / 2);
  return strip([
    part(spent > amount ? "over" : "spent", 0, at(spent)),
    ...(forecast === null ? [] : [part("band", Math.max(at(low), at(spent)), at(high)), tick("expected", forecast)]),
    tick("planned", amount),
  ]);
}

const VERDICTS = { exceeded: ["bad", "exceeded"], "will be exceeded": ["warn", "will be exceeded"] };

function budgetCard(budget) {
  const { amount, currency, forecast, spent } = budget;
  const written = (value) => exact(value, money(value, currency));
  // Without a row the spend is unknown, not 0.
  const shown = budget.coverage ? written(spent) : "no costs known";
  const [kind, words] = VERDICTS[budget.verdict] ?? ["good", forecast === null ? "not exceeded so far" : "within the budget"];
  const fact = (name, value, key = null) => [el("dt", { class: key && `key ${key}` }, name), el("dd", {}, value)];
  const remarks = [
    budget.method ? `${budget.method}, from ${number(budget.history_h)} h` : null,
    budget.note || null,
  ].filter(Boolean);
  const gaps = budget.missing.map((text) => el("li", {}, text));
  return el("article", { class: "card", "data-budget": budget.budget },
    el("h3", {}, budget.budget),
    el("p", { class: "muted" }, `${budget.scope}, ${budget.period_words} (${budget.timezone})`),
    el("p", { class: "big" }, shown, el("small", {}, " of ", written(amount), budget.coverage ? ` spent (${percent(spent / amount)})` : "")),
    budgetBar(budget),
    el("p", { class: `state ${kind}` }, words),
    el("dl", {},
      fact("spent", shown, spent > amount ? "over" : "spent"),
      fact("forecast", forecast === null ? "not enough data" : written(forecast), "expected"),
      forecast === null ? null
        : fact("80 % interval", [written(budget.forecast_low), " to ", written(budget.forecast_high)]),
      fact("budget", written(amount), "planned"),
      fact("period elapsed", percent(budget.elapsed_share)),
      fact("coverage so far", percent(budget.coverage)),
      fact("ends", moment(budget.period_end_ms).slice(0, 16).replace(" 00:00", ""))),
    remarks.length ? el("ul", { class: "remarks muted" }, remarks.map((text) => el("li", {}, text))) : null,
    gaps.length ? el("details", { class: "remarks muted", "data-key": budget.budget },
      el("summary", {}, "Parts not included"), el("ul", { class: "remarks" }, gaps)) : null);
}

export function showBudgets(answer) {
  show(byId("budgets"), answer.budgets.length ? answer.budgets.map(budgetCard)
    : el("p", { class: "muted" }, "No budget is configured: add a [[budget]] section to set one for a day, month, quarter or year."));
}
