"""The dashboard in Chromium: stored numbers, live updates, no console errors, accessibility."""

import pytest
from costprobe.core.clock import SystemClock
from costprobe.core.money import money
from dashboard_samples import cost_rows, labelled_rows, row, tenant_rows, write_status

NS_PER_S = 10**9
TENANTS = {"<b>search</b>": 0.3, "other": 0.2, "unattributed": 0.25}

pytestmark = pytest.mark.timeout(900)


def test_page_shows_stored_costs_and_live_changes(open_tab, today):
    tab = open_tab()
    tab.page.click("#units .expand")
    gpu0, gpu1 = (pytest.approx(cost * 1.287, rel=1e-12) for cost in (1.6e-6, 3.2e-6))
    assert tab.costs() == {"encoder probe, batch 16": gpu0, "gpu0": gpu0, "gpu1": gpu1}
    # The text of an alert is shown as text, never as HTML.
    text = tab.page.text_content("body")
    words = ("gpu-01", "it overheats", "connection refused", "Batch size", "<b>since noon</b>")
    assert [one for one in words if one not in text] == []
    clock = SystemClock()
    today.append(cost_rows("gpu1", 1, clock.time_ns(), cost=7e-5))
    write_status(today, clock.time_ns())
    # The row of both keeps the group open.
    tab.page.wait_for_function(
        "() => [...document.querySelectorAll('#units .member data')]"
        ".some(data => Math.abs(Number(data.value) / 1.4014e-4 - 1) < 1e-9)"
    )


def test_charts_write_money_and_the_page_writes_times_as_the_server_does(open_tab):
    tab = open_tab(timezone_id="Europe/Berlin")
    amounts = [0.0, 0.00158, 12.345, 1234.5, 14_028.0, 2.5e-9, -5.0]
    shown = tab.page.evaluate(
        """async amounts => {
          const { amount } = await import("/static/js/format.js");
          return amounts.flatMap(value => [amount(value, { before: "$" }), amount(value, { after: " CHF" })]);
        }""",
        amounts,
    )
    assert shown == [money(amount, currency) for amount in amounts for currency in ("USD", "CHF")]
    texts = ["since 2026-03-03 09:40 UTC, +$2 a month", "at 2026-03-01 23:40 UTC", "no time"]
    written = tab.page.evaluate(
        """async texts => {
          const { localTimes, setNow } = await import("/static/js/format.js");
          setNow(Date.parse("2026-03-03T12:00:00Z"));
          return texts.map(localTimes);
        }""",
        texts,
    )
    assert written == ["since 10:40, +$2 a month", "at 2026-03-02 00:40", "no time"]
    assert tab.text("#seen").endswith(" Europe/Berlin")
    assert "Europe/Berlin" in tab.text("footer")


def test_label_selects_the_costs_and_names_are_shown_as_text(open_tab, today):
    time_ns = SystemClock().time_ns() - 100 * NS_PER_S
    today.append([*labelled_rows(time_ns), *tenant_rows(time_ns, TENANTS)])
    tab = open_tab()
    tab.page.select_option("#label", "team=search")
    tab.page.wait_for_function("() => document.querySelectorAll('#units tbody tr').length === 1")
    assert list(tab.costs()) == ["rank service"]
    tab.page.wait_for_function(
        "() => document.getElementById('trend-json').search.includes('team')"
    )
    tab.page.wait_for_selector("#spend [aria-label^='By label']")
    row = tab.page.locator("#spend [aria-label^='By label'] tbody tr").first.inner_text()
    assert row.split("\t") == ["team", "search", "€0.750"]
    shown = tab.page.locator("[aria-label*='by tenant'] tbody th").all_text_contents()
    cached = "other (90 % of tokens in cached, saved €0.0200)"
    assert shown[:3] == ["<b>search</b>", cached, "unattributed"]
    # The first screen leads to where the money went.
    tab.page.wait_for_selector("#spend-now a[href='#split-title']")


def test_no_name_moves_or_turns_the_rest_of_the_page(open_tab, today):
    long = "x" * 200
    own = {"team": long, "device": long, "service": "\u202e<img src=x onerror=alert(1)>\x1b"}
    priced = {**own, "currency": "EUR", "basis": "serving", "served_model": long}
    fields = {"cost_per_inference": 3e-4, "cost_total": 0.3, "inferences": 1000.0}
    today.append([row("cost", SystemClock().time_ns() - 100 * NS_PER_S, fields, **priced)])
    tab = open_tab()
    assert tab.page.locator("#units [data-row*=xxx]").text_content().count(" <img src=x") == 1
    assert "\u202e" not in tab.page.locator("main").text_content()
    assert tab.page.locator("img").count() == 0
    for width_px in (1440, 375):
        tab.page.set_viewport_size({"width": width_px, "height": 900})
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= width_px


def test_all_controls_are_reachable_by_keyboard(open_tab):
    tab = open_tab()
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.textContent") == "Skip to the costs"
    seen = set()
    for _ in range(60):
        tab.page.keyboard.press("Tab")
        seen.add(tab.page.evaluate("document.activeElement.id || document.activeElement.name"))
    assert {"trend-field", "range", "trend-scrub", "sweep-choice"} <= seen


@pytest.mark.parametrize("width_px", [1280, pytest.param(375, marks=pytest.mark.soak)])
def test_page_has_no_accessibility_violations(open_tab, width_px):
    tab = open_tab()
    tab.page.set_viewport_size({"width": width_px, "height": 800})
    for place in ("#trend canvas", "#sweep canvas", "#budgets data", "#spend table"):
        tab.page.wait_for_selector(place)
    for place in ("#marks-box", "#firing", "#change", "#trend-more"):
        tab.page.click(f"{place} summary >> nth=0")
    tab.page.click("#units .expand")
    # The curve of a server names the cheapest load within its service level.
    tab.page.select_option("#sweep-choice", label="gpu1 chat, load")
    assert tab.text("#sweep .message").startswith("Within the SLO tpot_p50 25 ms: 8 in flight")
    tab.page.click("#sweep summary >> nth=-1")
    tab.page.wait_for_selector("#sweep tbody td:has-text('cheapest, meets the SLO')")
    for scheme in ("light", "dark"):
        tab.page.emulate_media(color_scheme=scheme)
        assert tab.violations() == [], scheme
    # No horizontal scrolling at the width of a phone.
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width_px
    tab.page.click("footer a:has-text('timing')")
    tab.page.wait_for_selector("h1:has-text('Why our timing')")
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width_px
