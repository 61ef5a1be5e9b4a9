"""The dashboard in Chromium: stored numbers, live updates, no console errors, accessibility."""

import json
from pathlib import Path

import pytest
from costprobe.adapters.store.read import StoreReader
from costprobe.core.clock import SystemClock
from dashboard_samples import cost_rows, labelled_rows, served_rows, write_status
from fakes.command import called

NS_PER_S = 10**9
PER_THOUSAND = 1000
MONEY_CASES = Path(__file__).parents[2] / "fakes" / "money_cases.json"

pytestmark = pytest.mark.timeout(900)


def test_page_shows_stored_costs_and_live_changes(open_tab, today):
    tab = open_tab()
    reader = StoreReader.open(today.path)
    stored = {
        row.tags["device"]: row.fields["rolling_1h"] for row in reader.points("cost", 0, 2**62)
    }
    reader.close()
    tab.page.click("#units .expand")
    assert tab.costs() == {
        "encoder gpu0": pytest.approx(stored["gpu0"], rel=1e-12),
        "encoder gpu1": pytest.approx(stored["gpu1"], rel=1e-12),
    }
    text = tab.page.inner_text("body")
    for words in ("gpu-01", "thermal throttling", "connection refused", "Batch size"):
        assert words in text
    # The text of an alert is shown as text, never as HTML.
    assert "<b>since noon</b>" in text
    clock = SystemClock()
    today.append(cost_rows("gpu1", 1, clock.time_ns(), cost=7e-5))
    write_status(today, clock.time_ns())
    tab.page.wait_for_function(
        "() => [...document.querySelectorAll('#units .of-group data')]"
        ".some(data => Math.abs(Number(data.value) / 1.4014e-4 - 1) < 1e-9)"
    )
    # The row of both keeps the group open.
    assert tab.costs()["encoder gpu1"] == pytest.approx(1.4014e-4)


def test_page_writes_money_as_the_command_line_does(open_tab):
    tab = open_tab()
    wrong = tab.page.evaluate(
        """async cases => {
          const { money, moneyOf } = await import("/static/js/format.js");
          return [
            ...cases.money.map(([amount, currency, text]) => [money(amount, currency), text]),
            ...cases.fields.map(([name, isMoney, factor]) =>
              [JSON.stringify(moneyOf(name)), JSON.stringify({ isMoney, factor })]),
          ].filter(([written, expected]) => written !== expected);
        }""",
        json.loads(MONEY_CASES.read_text()),
    )
    assert wrong == []


def test_budgets_equal_those_of_the_forecast_command(open_tab, today):
    tab = open_tab()
    tab.page.wait_for_selector("#budgets data")
    shown = tab.page.eval_on_selector_all(
        "[data-budget]",
        "cards => cards.map(card => [card.dataset.budget, card.querySelector('.state').textContent,"
        " ...[...card.querySelectorAll('dl data')].map(data => Number(data.value))])",
    )
    expected_budgets = {budget["budget"]: budget for budget in forecast(today)}
    assert [name for name, *_ in shown] == list(expected_budgets) == ["both", "gpu1-day"]
    for name, verdict, spent, expected, low, high, amount in shown:
        own = expected_budgets[name]
        assert (amount, verdict) == (own["amount"], own["verdict"] or "within the budget")
        assert spent == pytest.approx(own["spent"], rel=1e-9)
        # Page and command run some seconds apart.
        ends = [own["forecast"], own["forecast_low"], own["forecast_high"]]
        assert [expected, low, high] == pytest.approx(ends, rel=1e-3)


def forecast(store):
    return json.loads(called(store.path.parent / "costprobe.toml", "budget", "--json").stdout)


def test_model_rows_are_distinct_from_the_row_of_their_service(open_tab, today):
    now_ns = SystemClock().time_ns()
    today.append([*served_rows(now_ns - 400 * NS_PER_S), *served_rows(now_ns - 100 * NS_PER_S)])
    tab = open_tab()
    tab.page.wait_for_selector("[data-cost='chat/tuned gpu0']")
    shown = [tab.text(f"[data-cost='chat/{name} gpu0']") for name in ("base", "tuned")]
    assert ["€0.2 / 1,000 inferences" in shown[0], "€0.9 / 1,000 inferences" in shown[1]] == [
        True
    ] * 2
    assert "base service chat" in shown[0]
    # The parts have the row of the whole service too.
    parts = [text.split("\t")[0] for text in tab.page.inner_text("#parts tbody").split("\n")]
    assert {"chat on gpu0", "chat/base on gpu0", "chat/tuned on gpu0"} <= set(parts)
    facts = tab.text("#parts")
    for words in (
        "€0.15, 300,000 J",
        "€0 (no weight measured)",
        "50 %",
        "€0.0003",
        "token weights",
        "300 J (counter ±5 %)",
    ):
        assert words in facts
    tab.page.select_option("#trend-field", "cost.energy_per_request_j")
    tab.page.wait_for_selector("#trend [aria-label*='gpu0 chat tuned 900']")
    summary = tab.page.get_attribute("#trend [role=img]", "aria-label")
    assert "gpu0 chat base 200 J per request; gpu0 chat tuned 900 J per request" in summary
    legend = tab.page.locator("#trend .legend >> nth=0").locator("li").all_text_contents()
    assert legend == [
        "gpu0 chat base200 J per request",
        "gpu0 chat tuned900 J per request",
        "gpu0 chat300 J per request",
    ]


def test_label_selects_the_costs_and_divides_the_last_day(open_tab, today):
    today.append(labelled_rows(SystemClock().time_ns() - 100 * NS_PER_S))
    tab = open_tab()
    tab.page.select_option("#label", "team=search")
    tab.page.wait_for_function("() => document.querySelectorAll('#units [data-cost]').length === 1")
    assert list(tab.costs()) == ["rank gpu0"]
    assert "rank on gpu0" in tab.page.inner_text("#parts")
    assert "encoder" not in tab.page.inner_text("#parts")
    tab.page.wait_for_function(
        "() => document.getElementById('trend-json').search.includes('team')"
    )
    tab.page.wait_for_selector("[aria-label='Cost of each label']")
    rows = tab.page.inner_text("[aria-label='Cost of each label'] tbody").split("\n")
    assert rows[0].split("\t") == ["team", "search", "€0.75"]
    assert rows[1].startswith("team\tnone")


def test_all_controls_are_reachable_by_keyboard(open_tab):
    tab = open_tab()
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.textContent") == "Skip to the costs"
    seen = set()
    for _ in range(60):
        tab.page.keyboard.press("Tab")
        seen.add(tab.page.evaluate("document.activeElement.id || document.activeElement.name"))
    assert {
        "trend-field",
        "trend-scale",
        "trend-group",
        "range",
        "trend-scrub",
        "sweep-choice",
    } <= seen


@pytest.mark.parametrize("width_px", [1280, pytest.param(375, marks=pytest.mark.soak)])
def test_page_has_no_accessibility_violations(open_tab, width_px):
    tab = open_tab()
    tab.page.set_viewport_size({"width": width_px, "height": 800})
    tab.page.wait_for_selector("#trend canvas")
    tab.page.wait_for_selector("#sweep canvas")
    tab.page.wait_for_selector("#budgets data")
    tab.page.wait_for_selector("#spend table")
    tab.page.click("#marks-box summary")
    tab.page.click("#firing summary")
    tab.page.click("#units .expand")
    # The curve of a server names the cheapest load within its service level.
    tab.page.select_option("#sweep-choice", label="gpu1 chat, load")
    verdict = "Within the SLO tpot_p50 25 ms: 8 in flight costs least: €1.7 per M tokens out, 45 tokens/s of a user."
    assert tab.text("#sweep .message") == verdict
    tab.page.click("#sweep summary >> nth=-1")
    tab.page.wait_for_selector("#sweep tbody td:has-text('cheapest, meets the SLO')")
    for scheme in ("light", "dark"):
        tab.page.emulate_media(color_scheme=scheme)
        assert tab.violations() == [], scheme
    # No horizontal scrolling at the width of a phone.
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width_px
    # The column leads to how latency is measured.
    tab.page.click("a:has-text('Latency')" if width_px > 1000 else "footer a:has-text('timing')")
    tab.page.wait_for_selector("h1:has-text('Why our timing')")
    assert tab.violations() == []
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width_px
