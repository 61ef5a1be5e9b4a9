"""The dashboard in Chromium: stored numbers, live updates, no console errors, accessibility."""

import json

import pytest
from costprobe.adapters.store.read import StoreReader
from costprobe.core.clock import SystemClock
from costprobe.ui.amounts import money
from dashboard_samples import cost_rows, labelled_rows, served_rows, write_status
from fakes.command import called

NS_PER_S = 10**9

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
        "encoder probe, batch 16": pytest.approx(stored["gpu0"], rel=1e-12),
        "gpu0": pytest.approx(stored["gpu0"], rel=1e-12),
        "gpu1": pytest.approx(stored["gpu1"], rel=1e-12),
    }
    # The text of an alert is shown as text, never as HTML.
    text = tab.page.text_content("body")
    for words in (
        "gpu-01",
        "it overheats",
        "connection refused",
        "Batch size",
        "<b>since noon</b>",
    ):
        assert words in text
    clock = SystemClock()
    today.append(cost_rows("gpu1", 1, clock.time_ns(), cost=7e-5))
    write_status(today, clock.time_ns())
    tab.page.wait_for_function(
        "() => [...document.querySelectorAll('#units .member data')]"
        ".some(data => Math.abs(Number(data.value) / 1.4014e-4 - 1) < 1e-9)"
    )
    # The row of both keeps the group open.
    assert tab.costs()["gpu1"] == pytest.approx(1.4014e-4)


def test_charts_write_money_as_the_server_does(open_tab):
    amounts = [0.0, 0.00158, 12.345, 1234.5, 14_028.0, 2.5e-9, -5.0]
    shown = open_tab().page.evaluate(
        """async amounts => {
          const { amount } = await import("/static/js/format.js");
          return amounts.flatMap(value => [amount(value, { before: "$" }), amount(value, { after: " CHF" })]);
        }""",
        amounts,
    )
    assert shown == [money(amount, currency) for amount in amounts for currency in ("USD", "CHF")]


def test_budgets_are_those_of_the_budget_command(open_tab, today):
    tab = open_tab()
    tab.page.wait_for_selector("#budgets data")
    shown = tab.page.eval_on_selector_all(
        "[data-budget]",
        "cards => cards.map(card => [card.dataset.budget, card.querySelector('.state').textContent,"
        " ...[...card.querySelectorAll('dl data')].map(data => Number(data.value))])",
    )
    found = called(today.path.parent / "costprobe.toml", "budget", "--json").stdout
    for own, one in zip(json.loads(found), shown, strict=True):
        # Page and command run some seconds apart.
        verdict = own["verdict"] or "within the budget"
        amounts = [own["spent"], own["forecast"], own["amount"]]
        assert one == [own["budget"], verdict, *(pytest.approx(a, rel=1e-3) for a in amounts)]


def test_model_rows_are_distinct_from_the_row_of_their_service(open_tab, today):
    now_ns = SystemClock().time_ns()
    today.append([*served_rows(now_ns - 400 * NS_PER_S), *served_rows(now_ns - 100 * NS_PER_S)])
    tab = open_tab()
    tab.page.wait_for_selector("[data-row='tuned chat']")
    shown = [tab.text(f"[data-row='{name} chat']") for name in ("base", "tuned")]
    assert ["€0.2 / 1,000 inferences" in shown[0], "€0.9 / 1,000 inferences" in shown[1]] == [
        True
    ] * 2
    # The parts have the row of the whole service too.
    parts = tab.page.locator("#parts tbody th").all_text_contents()
    assert {"chat on gpu0", "chat/base on gpu0", "chat/tuned on gpu0"} <= set(parts)
    facts = tab.text("#parts")
    for words in (
        "€0.15, 300 kJ",
        "€0 (no weight measured)",
        "50 %",
        "€0.0003",
        "token weights",
        "300 J (counter ±5 %)",
    ):
        assert words in facts
    tab.page.select_option("#trend-field", "cost.energy_per_request_j")
    tab.page.wait_for_selector("#trend [aria-label*='chat tuned 900']")
    legend = tab.page.locator("#trend .legend >> nth=0").locator("li").all_text_contents()
    assert legend == ["gpu0 chat300", "gpu0 chat base200", "gpu0 chat tuned900"]


def test_label_selects_the_costs_and_divides_the_last_day(open_tab, today):
    today.append(labelled_rows(SystemClock().time_ns() - 100 * NS_PER_S))
    tab = open_tab()
    tab.page.select_option("#label", "team=search")
    tab.page.wait_for_function("() => document.querySelectorAll('#units tbody tr').length === 1")
    assert list(tab.costs()) == ["rank service"]
    assert "rank on gpu0" in tab.page.inner_text("#parts")
    assert "encoder" not in tab.page.inner_text("#parts")
    tab.page.wait_for_function(
        "() => document.getElementById('trend-json').search.includes('team')"
    )
    tab.page.wait_for_selector("#spend [aria-label^='By label']")
    row = tab.page.locator("#spend [aria-label^='By label'] tbody tr").first.inner_text()
    assert row.split("\t") == ["team", "search", "€0.75"]


def test_all_controls_are_reachable_by_keyboard(open_tab):
    tab = open_tab()
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.textContent") == "Skip to the costs"
    seen = set()
    for _ in range(60):
        tab.page.keyboard.press("Tab")
        seen.add(tab.page.evaluate("document.activeElement.id || document.activeElement.name"))
    assert {
        "trend-field", "range", "trend-scrub", "sweep-choice"
    } <= seen  # fmt: skip


@pytest.mark.parametrize("width_px", [1280, pytest.param(375, marks=pytest.mark.soak)])
def test_page_has_no_accessibility_violations(open_tab, width_px):
    tab = open_tab()
    tab.page.set_viewport_size({"width": width_px, "height": 800})
    tab.page.wait_for_selector("#trend canvas")
    tab.page.wait_for_selector("#sweep canvas")
    tab.page.wait_for_selector("#budgets data")
    tab.page.wait_for_selector("#spend table")
    for place in ("#marks-box", "#firing", "#change", "#trend-more"):
        tab.page.click(f"{place} summary >> nth=0")
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
    tab.page.click("footer a:has-text('timing')")
    tab.page.wait_for_selector("h1:has-text('Why our timing')")
    assert tab.violations() == []
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width_px
