"""The first screen of the page in Chromium: what it holds without scrolling, its states and its tables."""

import os
from datetime import UTC, datetime

import pytest
from costprobe.adapters.store.write import Store
from costprobe.core.clock import SystemClock
from costprobe.ui.text import dated
from dashboard_samples import device_row, planned, row, status_document, write_status

NS_PER_S = 10**9

pytestmark = pytest.mark.timeout(900)

# The answers that fit on the screen: their elements, and the height in px that they end within.
SCREENS = {
    (1440, 900): ("#spend-now", "#change", "#units", "#firing"),
    (768, 1024): ("#spend-now", "#change", "#units"),
    (375, 667): ("#spend-now", "#change", "#units tbody tr >> nth=0"),
}
TIMES = {
    "from 09:40:03 to 09:41:06 UTC": "from 2026-03-03 09:40 UTC to 2026-03-03 09:41 UTC",
    "since 09:40 UTC": "since 2026-03-03 09:40 UTC",
    "23:50 UTC, 2026-01-01 00:10 UTC": "2026-03-02 23:50 UTC, 2026-01-01 00:10 UTC",
}


def test_answers_are_on_the_first_screen(open_tab, today):
    # Eight devices with the same model: the rows of a typical host.
    own = {"probe": "encoder", "basis": "probe", "plan": "owned", "currency": "EUR"}
    fields = {"cost_per_inference": 1.6e-6, "rolling_1h": 1.6e-6}
    now_ns = SystemClock().time_ns()
    today.append(
        row("cost", now_ns, fields, device=f"gpu{number}", **own) for number in range(2, 8)
    )
    tab = open_tab()
    tab.page.wait_for_selector("#spend-now .planned", state="attached")
    for (width_px, height_px), selectors in SCREENS.items():
        tab.page.set_viewport_size({"width": width_px, "height": height_px})
        boxes = {name: tab.page.locator(name).bounding_box() for name in selectors}
        ends = {name: box["y"] + box["height"] for name, box in boxes.items()}
        assert {name: end for name, end in ends.items() if end > height_px} == {}, width_px
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= width_px
    tiles = tab.text("#spend-now")
    words = ("Spend now", "an hour", "of €1", "exceeded", "Unused now", "Power")
    assert [one for one in words if one not in tiles] == []


def test_times_of_day_in_a_text_get_their_date():
    at_ns = int(datetime(2026, 3, 3, 12, tzinfo=UTC).timestamp()) * NS_PER_S
    assert {text: dated(text, at_ns) for text in TIMES} == TIMES


def test_empty_page_has_one_thing_to_do(page_on, clock, tmp_path, kept_tab):
    store = Store.open(tmp_path / "new.db", clock)
    write_status(store, clock.time_ns())
    kept_tab.goto(page_on(store.path, clock).address.url)
    kept_tab.wait_for_selector("#units p")
    assert "costprobe doctor" in kept_tab.inner_text("#units")
    titles = kept_tab.locator("main section > h2, .title h2").all()
    shown = [one.inner_text() for one in titles if one.is_visible()]
    assert shown == ["What a model costs now", "Firing"]
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
    status = status_document(today.path, SystemClock().time_ns())
    today.put_state("status", {**status, "pid": 2**22 + os.getpid()})
    assert is_stale(tab, "daemon not running")
    tab.page.wait_for_function(
        "() => /last seen \\d+ s ago/.test(document.getElementById('seen').textContent)"
    )
    assert "the daemon is not running" in tab.text("#firing")
    filters = tab.page.eval_on_selector_all(
        ".bar, .spark", "all => all.map(one => getComputedStyle(one).filter)"
    )
    assert set(filters) == {"grayscale(1)"}
    # No answer is on its way: the page's clock runs on, and nothing arrives.
    tab.page.wait_for_load_state("networkidle")
    tab.page.route("**/api/now*", lambda _: None)
    tab.page.evaluate(
        "const now = performance.now.bind(performance); performance.now = () => now() + 180_000"
    )
    tab.page.wait_for_function(
        "() => document.getElementById('seen').textContent === 'last seen 3 min ago'"
    )


def test_old_readings_are_not_live(page_on, store, clock, tab_of):
    clock.move(600)
    write_status(store, clock.time_ns())
    tab = tab_of(page_on(store.path, clock).address.url, is_live=False)
    assert is_stale(tab, "no new readings")
    assert tab.text("#seen").startswith("last seen 1")
    assert "11 min ago" in tab.text("#devices")


def test_missing_store_is_shown(page_on, clock, tmp_path, kept_tab):
    kept_tab.goto(page_on(tmp_path / "later.db", clock).address.url)
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


def test_many_devices_are_a_map_and_a_sortable_table(open_tab, today):
    now_ns = SystemClock().time_ns()
    names = [f"gpu{number}" for number in range(64)]
    heat = {name: 30.0 + number for number, name in enumerate(names)}
    today.append(device_row(name, 1, now_ns + 1, temp_c=heat[name]) for name in names)
    tab = open_tab()
    cells = tab.page.locator("#devices li")
    assert cells.count() == 64
    assert cells.nth(2).text_content() == "gpu2: busy, utilization 95 %"
    assert tab.violations("#devices") == []
    tab.page.click("#devices summary")

    def sorted_by(head):
        tab.page.click(f"#devices [data-key='{head}']")
        assert tab.page.evaluate("document.activeElement.dataset.key") == head
        first = tab.page.locator("#devices tbody th").all_text_contents()[0]
        return first, tab.page.get_attribute(f"th:has([data-key='{head}'])", "aria-sort")

    assert tab.page.locator("#devices tbody th").all_text_contents() == names
    assert sorted_by("Temperature") == ("gpu63", "descending")
    assert sorted_by("Temperature") == ("gpu2", "ascending")
    assert tab.page.evaluate("document.querySelector('#devices .scroll').offsetHeight") < 700
