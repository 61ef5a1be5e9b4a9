"""The first screen of the page in Chromium: what it holds without scrolling, its states and its tables."""

import os

import pytest
from costprobe.core.clock import SystemClock
from costprobe.core.money import price_scale, unit_price
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
    (375, 667): ("#spend-now", "#change", "#units [data-cost] >> nth=0"),
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
    for words in ("Spend now", "an hour", "of €1", "exceeded by", "Idle", "Power"):
        assert words in tiles
    assert "8.5 %" in tab.text("#change")
    assert "encoder on gpu0" in tab.text("#change")


def test_times_and_unit_prices_are_written_as_elsewhere(open_tab):
    tab = open_tab(timezone_id="Europe/Berlin")
    assert tab.text("#seen").endswith(" Europe/Berlin")
    assert "Europe/Berlin" in tab.text("footer")
    texts = [
        "since 09:40 UTC, +$2 a month", "at 2026-03-01 23:40 UTC", "since 23:50 UTC", "no time"
    ]  # fmt: skip
    written = tab.page.evaluate(
        """async texts => {
          const { localTimes } = await import("/static/js/format.js");
          const at = Date.parse("2026-03-03T12:00:00Z");
          return texts.map(text => localTimes(text, at, at));
        }""",
        texts,
    )
    assert written == [
        "since 10:40, +$2 a month", "at 2026-03-02 00:40", "since 00:50", "no time"
    ]  # fmt: skip
    prices = {price: price_scale(price) for price in (2e-8, 2.4e-7, 3e-4, 0.2, 150.0)}
    shown = tab.page.evaluate(
        """async pairs => {
          const { money, scaleWords } = await import("/static/js/format.js");
          return pairs.map(([price, scale]) => `${money(price * scale, "USD")} per ${scaleWords(scale, "inference")}`);
        }""",
        list(prices.items()),
    )
    expected = [unit_price(price, "USD", scale, "inference") for price, scale in prices.items()]
    assert shown == [text.replace("million", "M") for text in expected]


def test_data_that_arrives_during_a_load_is_loaded_again(open_tab):
    # Money of the month may arrive while the overview without it is being loaded.
    read = open_tab().page.evaluate(
        """async () => {
          const { Loading } = await import("/static/js/loading.js");
          let newest = "old";
          const read = [], loads = [];
          const loading = new Loading(3_600_000, () => {}, () => {
            read.push(newest);
            return new Promise(end => loads.push(end));
          });
          const begun = count => new Promise(end => {
            const look = () => loads.length >= count ? end() : setTimeout(look, 1);
            look();
          });
          loading.refresh();
          await begun(1);
          newest = "new";
          loading.hurry();
          loads[0]();
          await begun(2);
          // What arrives during a load is loaded when it is due, also if nothing arrives afterwards.
          newest = "newer";
          loading.refresh();
          loading.everyMs = 0;
          loads[1]();
          await begun(3);
          loads[2]();
          return read;
        }"""
    )
    assert read == ["old", "new", "newer"]


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
    # The page's clock runs on, and nothing arrives.
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
    tab.page.click("#devices [data-key=temp_c]")
    assert first_column()[0] in {"gpu63", "gpu0", "gpu1"}
    hottest = tab.page.locator("#devices tbody tr").nth(0).inner_text()
    assert "°C" in hottest
    assert tab.page.get_attribute("#devices th:has([data-key=temp_c])", "aria-sort") == "descending"
    tab.page.click("#devices [data-key=temp_c]")
    assert tab.page.get_attribute("#devices th:has([data-key=temp_c])", "aria-sort") == "ascending"
    # In one step: the table is drawn again when the costs arrive.
    height_px = tab.page.evaluate("document.querySelector('#devices .scroll').offsetHeight")
    assert height_px < 700


def test_uses_and_tenants_of_the_day_add_up_to_its_total(open_tab, today):
    time_ns = SystemClock().time_ns() - NS_PER_S
    today.append([*labelled_rows(time_ns), *tenant_rows(time_ns, TENANTS)])
    tab = open_tab()
    tab.page.wait_for_selector("#spend tfoot data")
    for name in ("use", "tenant"):
        place = f"#spend [aria-label='Cost by {name}']"
        values = tab.page.eval_on_selector_all(
            f"{place} [data-part]:not([data-part=model]) data",
            "found => found.map(data => Number(data.value))",
        )
        total = float(tab.page.get_attribute(f"{place} tfoot data", "value"))
        assert sum(values) == pytest.approx(total), name
    # A name from a gateway is shown as text.
    shown = tab.page.locator("[aria-label='Cost by tenant'] tbody th").all_text_contents()
    cached = "other (90\xa0% of tokens in cached, saved €0.02)"
    assert shown[:3] == ["<b>search</b>", cached, "unattributed"]
    # The first screen names the largest uses.
    tab.page.wait_for_selector("#spend-now a[href='#split-title']")
    assert "no service, " in tab.text("[data-tile='Spend now']")
