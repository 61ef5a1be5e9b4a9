"""The first screen of the page in Chromium: what it holds without scrolling, its states and its tables."""

import os
from datetime import UTC, datetime

import pytest
from costprobe.adapters.store.write import Store
from costprobe.core.clock import SystemClock
from costprobe.ui.text import dated
from dashboard_samples import (
    cost_rows,
    device_row,
    labelled_rows,
    planned,
    status_document,
    tenant_rows,
    write_status,
)

NS_PER_S = 10**9

pytestmark = pytest.mark.timeout(900)

TENANTS = {"<b>search</b>": 0.3, "other": 0.2, "unattributed": 0.25}
# The answers that fit on the screen: their elements, and the height in px that they end within.
SCREENS = {
    (1440, 900): ("#spend-now", "#change", "#units", "#firing"),
    (768, 1024): ("#spend-now", "#change", "#units"),
    (375, 667): ("#spend-now", "#change", "#units tbody tr >> nth=0"),
}


def bottoms(tab, selectors):
    boxes = {selector: tab.page.locator(selector).bounding_box() for selector in selectors}
    return {selector: box["y"] + box["height"] for selector, box in boxes.items()}


def test_answers_are_on_the_first_screen(open_tab, today):
    # Eight devices with two models each, and a service with two: the rows of a typical host.
    now_ns = SystemClock().time_ns()
    for number in range(2, 8):
        rows = [row for row in cost_rows("gpu0", 1, now_ns) if "device" in row.tags]
        today.append(
            [
                type(row)(
                    row.measurement, {**row.tags, "device": f"gpu{number}"}, row.fields, now_ns
                )
                for row in rows
            ]
        )
    tab = open_tab()
    tab.page.wait_for_selector("#spend-now .planned", state="attached")
    for (width_px, height_px), selectors in SCREENS.items():
        tab.page.set_viewport_size({"width": width_px, "height": height_px})
        found = bottoms(tab, selectors)
        assert {name: end for name, end in found.items() if end > height_px} == {}, width_px
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= width_px
    tiles = tab.text("#spend-now")
    for words in ("Spend now", "an hour", "of €1", "exceeded", "Unused now", "Power"):
        assert words in tiles


def test_times_are_in_the_zone_of_the_page(open_tab):
    tab = open_tab(timezone_id="Europe/Berlin")
    assert tab.text("#seen").endswith(" Europe/Berlin")
    assert "Europe/Berlin" in tab.text("footer")
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
    # Times of day in a text get their date from when it was written.
    at_ns = int(datetime(2026, 3, 3, 12, tzinfo=UTC).timestamp()) * NS_PER_S
    assert dated("since 09:40 UTC", at_ns) == "since 2026-03-03 09:40 UTC"
    assert (
        dated("23:50 UTC, 2026-01-01 00:10 UTC", at_ns)
        == "2026-03-02 23:50 UTC, 2026-01-01 00:10 UTC"
    )


def test_empty_page_has_one_thing_to_do(page_on, clock, tmp_path, kept_tab):
    store = Store.open(tmp_path / "new.db", clock)
    write_status(store, clock.time_ns())
    server = page_on(store.path, clock)
    kept_tab.goto(server.address.url)
    kept_tab.wait_for_selector("#units p")
    assert "costprobe doctor" in kept_tab.inner_text("#units")
    titles = [
        one.inner_text()
        for one in kept_tab.locator("main section > h2, .title h2").all()
        if one.is_visible()
    ]
    assert titles == ["What a model costs now", "Firing"]
    kept_tab.goto("about:blank")
    store.close()


def is_stale(tab, words):
    tab.page.wait_for_function(
        "words => document.getElementById('live').textContent.includes(words)", arg=words
    )
    return tab.page.evaluate("document.body.classList.contains('stale')")


def test_dead_daemon_is_not_live(open_tab, today):
    tab = open_tab()
    assert not tab.page.evaluate("document.body.classList.contains('stale')")
    now_ns = SystemClock().time_ns()
    today.put_state("status", {**status_document(today.path, now_ns), "pid": 2**22 + os.getpid()})
    assert is_stale(tab, "daemon not running")
    tab.page.wait_for_function(
        "() => /last seen \\d+ s ago/.test(document.getElementById('seen').textContent)"
    )
    assert "the daemon is not running" in tab.text("#firing")
    uncoloured = tab.page.evaluate(
        """() => [...document.querySelectorAll(".bar, .spark")]
        .every((one) => getComputedStyle(one).filter === "grayscale(1)")"""
    )
    assert uncoloured


def test_silent_daemon_becomes_stale_without_any_message(open_tab):
    tab = open_tab()
    # No answer is on its way: the page's clock runs on, and nothing arrives.
    tab.page.wait_for_load_state("networkidle")
    tab.page.route("**/api/now*", lambda _: None)
    tab.page.evaluate(
        "const now = performance.now.bind(performance); performance.now = () => now() + 180_000"
    )
    assert is_stale(tab, "daemon not running")
    assert tab.text("#seen") == "last seen 3 min ago"


def test_old_readings_are_not_live(page_on, store, clock, tab_of):
    clock.move(600)
    write_status(store, clock.time_ns())
    server = page_on(store.path, clock)
    tab = tab_of(server.address.url, is_live=False)
    assert is_stale(tab, "no new readings")
    assert tab.text("#seen").startswith("last seen 1")
    assert "10 min ago" in tab.text("#devices") or "11 min ago" in tab.text("#devices")


def test_missing_store_is_shown(page_on, clock, tmp_path, kept_tab):
    server = page_on(tmp_path / "later.db", clock)
    kept_tab.goto(server.address.url)
    kept_tab.wait_for_function("() => document.getElementById('live').textContent === 'no data'")
    assert "costprobe run" in kept_tab.inner_text("#trouble")
    # Nothing is loading, and no empty section is shown.
    assert kept_tab.inner_text("main").strip() == kept_tab.inner_text("#trouble")
    assert kept_tab.evaluate("document.body.classList.contains('stale')")
    kept_tab.goto("about:blank")


def test_lost_connection_to_the_server_is_shown(page_on, today, tab_of):
    clock = SystemClock()
    server = page_on(today.path, clock, budgets=planned(today, clock))
    tab = tab_of(server.address.url, is_live=False)
    server.stop()
    assert is_stale(tab, "server not reachable")
    assert tab.text("#seen").startswith("last seen ")


def test_many_devices_are_a_sortable_table(open_tab, today):
    now_ns = SystemClock().time_ns()
    names = [f"gpu{number}" for number in range(64)]
    rows = [device_row("gpu0", 1, now_ns) for _ in names]
    today.append(
        [
            type(row)(
                "device",
                {**row.tags, "device": name},
                {**row.fields, "temp_c": 30.0 + index},
                now_ns,
            )
            for index, (name, row) in enumerate(zip(names, rows, strict=True))
        ]
    )
    tab = open_tab()

    def first_column():
        return tab.page.locator("#devices tbody th").all_text_contents()

    assert first_column() == names
    tab.page.click("#devices [data-key=Temperature]")
    assert first_column()[0] in {"gpu63", "gpu0", "gpu1"}
    hottest = tab.page.locator("#devices tbody tr").nth(0).inner_text()
    assert "°C" in hottest
    assert (
        tab.page.get_attribute("#devices th:has([data-key=Temperature])", "aria-sort")
        == "descending"
    )
    tab.page.click("#devices [data-key=Temperature]")
    assert (
        tab.page.get_attribute("#devices th:has([data-key=Temperature])", "aria-sort")
        == "ascending"
    )
    # In one step: the table is drawn again when the costs arrive.
    height_px = tab.page.evaluate("document.querySelector('#devices .scroll').offsetHeight")
    assert height_px < 700


def test_names_from_a_gateway_are_shown_as_text(open_tab, today):
    time_ns = SystemClock().time_ns() - NS_PER_S
    today.append([*labelled_rows(time_ns), *tenant_rows(time_ns, TENANTS)])
    tab = open_tab()
    tab.page.wait_for_selector("#spend tfoot data")
    shown = tab.page.locator("[aria-label*='by tenant'] tbody th").all_text_contents()
    cached = "other (90 % of tokens in cached, saved €0.02)"
    assert shown[:3] == ["<b>search</b>", cached, "unattributed"]
    # The first screen leads to where the money went.
    tab.page.wait_for_selector("#spend-now a[href='#split-title']")
    assert "without a service" in tab.text("[data-tile='Unused now']")
