"""The trend on the page in Chromium: zoom, address, tooltips, marks, groups, and empty charts."""

from urllib.parse import parse_qs, urlsplit

import pytest
from browser_tab import Tab, blank_page
from costprobe.core.clock import SystemClock
from dashboard_samples import filled, many_rows, status_document
from page_servers import host_server

DAY_MS = 86_400_000
CONTROLS = "#trend :is(button, input, summary, a)"
REFUSED = {
    "?field=cost.%3Cb%3E&since=24h": "'cost.<b>' is not a field of the series",
    "?since=9999d": "since: at most 400d before until",
    "?at=noon": "at: 'noon' is not a duration",
    "?group=rack": "group: 'rack' is not one of series, model, device",
}

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def trend_tab(browser, tmp_path_factory):
    """A tab on a store that no test changes, of a probe on two devices and one on twelve; the daemon is stopped."""
    store = filled(tmp_path_factory.mktemp("trend") / "costprobe.db", SystemClock())
    now_ns = SystemClock().time_ns()
    store.append(many_rows(now_ns))
    # Figures that are not live are grey, in light and dark mode.
    store.put_state("status", {**status_document(store.path, now_ns), "state": "stopped"})
    server = host_server(store.path, SystemClock())
    tab = Tab(blank_page(browser), server.address.url, is_live=False)
    yield tab
    tab.leave()
    server.stop()
    store.close()


@pytest.fixture
def open_page(trend_tab):
    """Opens an address in the tab, by default with one probe on two devices."""

    def start(query="?probe=encoder", width_px=1280):
        trend_tab.page.set_viewport_size({"width": width_px, "height": 800})
        trend_tab.page.emulate_media(color_scheme="light")
        trend_tab.page.goto(urlsplit(trend_tab.page.url)._replace(query=query.lstrip("?")).geturl())
        return trend_tab

    yield start
    assert trend_tab.console == []


def drawn(tab, words=""):
    """Wait for a chart with these words in its description, and return the description."""
    tab.page.wait_for_selector("#trend:not([aria-busy]) canvas")
    tab.page.wait_for_function(
        "words => document.querySelector('#trend [role=img]').ariaLabel.includes(words)", arg=words
    )
    return tab.page.get_attribute("#trend [role=img]", "aria-label")


def address(tab):
    return parse_qs(urlsplit(tab.page.url).query)


def test_zoom_range_and_lines_are_in_the_address_and_restored(open_page):
    tab = open_page("?field=probe.latency_p50_ms&group=series")
    drawn(tab, "latency p50, ms over the last 24 h")
    tab.page.locator("#trend .u-over").scroll_into_view_if_needed()
    box = tab.page.locator("#trend .u-over").bounding_box()
    mouse, top = tab.page.mouse, box["y"] + box["height"] / 2
    mouse.move(box["x"] + box["width"] / 4, top)
    mouse.down()
    mouse.move(box["x"] + box["width"] / 2, top, steps=4)
    mouse.up()
    tab.page.wait_for_url("**until=*")
    found = address(tab)
    tab.page.wait_for_selector("#trend:not([aria-busy])")
    summary = drawn(tab, "latency p50, ms over 20")
    length = "([since, until]) => (Date.parse(until) - Date.parse(since)) / 864e5"
    ends = [found["since"][0], found["until"][0]]
    assert tab.page.evaluate(length, ends) == pytest.approx(0.25, abs=0.01)
    tab.page.click("#trend .legend button:has-text('gpu1')")
    assert address(tab) == {**found, "line": ["gpu0 encoder"]}
    # The address alone shows the same chart again.
    tab.page.reload()
    assert drawn(tab, "latency p50, ms over 20") == summary
    pressed = "buttons => buttons.map(button => button.ariaPressed)"
    assert tab.page.eval_on_selector_all("#trend .legend button", pressed) == ["true", "false"]
    assert tab.page.locator("input[name=range]:checked").count() == 0
    tab.page.go_back()
    drawn(tab, "over the last 24 h")
    assert address(tab) == {"field": ["probe.latency_p50_ms"], "group": ["series"]}
    assert tab.page.is_checked("input[name=range][value='24h']")
    # Without a pointer: by keyboard, and typed.
    tab.page.focus("#trend button[aria-label='Zoom in']")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_url("**since=*")
    tab.page.click("#trend-more summary")
    year = tab.page.evaluate(f"new Date(Date.now() - 365 * {DAY_MS}).toISOString().slice(0, 16)")
    tab.page.fill("#trend-since", year)
    tab.page.focus("#trend-until")
    tab.page.keyboard.press("Enter")
    drawn(tab, year.replace("T", " ")[:10])


def test_tooltip_has_the_colours_and_units_of_the_lines(open_page):
    tab = open_page("?scale=amount&probe=encoder&group=series")
    drawn(tab)
    tab.page.locator("#trend .u-over").hover()
    rows = tab.page.locator("#trend .tip tr")
    rows.first.wait_for()
    assert rows.count() <= 5
    colours = """rows => Object.fromEntries(rows.map(row => [
        row.textContent.match(/gpu./)[0], getComputedStyle(row.querySelector('line')).stroke]))"""
    of_tip = rows.evaluate_all(colours)
    assert of_tip == tab.page.locator("#trend .legend button").evaluate_all(colours)
    assert len(set(of_tip.values())) == 2
    assert "€2.06" in tab.page.inner_text("#trend .legend")  # 1.6e-6 and 28.7 % more
    # The unit once, in the head.
    assert all("per M" not in text and "€" in text for text in rows.all_inner_texts())
    assert tab.page.inner_text("#trend .tip p").endswith(", per M inferences")
    # By keyboard, and in a description.
    tab.page.focus("#trend-scrub")
    tab.page.keyboard.press("ArrowRight")
    assert "per M inferences" in tab.page.get_attribute("#trend-scrub", "aria-valuetext")
    # Also after the pointer has left, as when the focus scrolls the page.
    tab.page.mouse.move(0, 0)
    assert rows.first.is_visible()
    # Nothing of it stays after a switch.
    tab.page.select_option("#trend-field", "probe.latency_p50_ms")
    drawn(tab, "latency p50")
    text = tab.page.get_attribute("#trend-scrub", "aria-valuetext")
    assert ("per M inferences" in text, " ms" in text) == (False, True)


def test_marks_have_a_text_on_focus_and_in_a_list(open_page):
    tab = open_page()
    drawn(tab)
    # A drift, a price, and an incident.
    tab.page.wait_for_function("() => document.getElementById('marks-count').textContent === '3'")
    tab.page.focus("#trend .mark")
    texts = []
    for _ in range(3):
        tab.page.locator("#trend .tip.still").wait_for()
        texts.append(tab.page.inner_text("#trend .tip"))
        assert tab.page.evaluate("document.activeElement.ariaLabel") == texts[-1]
        tab.page.keyboard.press("ArrowRight")
    assert [text.split(", ")[1].split(":")[0] for text in texts] == ["drift", "incident", "price"]
    tab.page.keyboard.press("Escape")
    assert not tab.page.locator("#trend .tip").is_visible()
    tab.page.click("#marks-box summary")
    assert "cost per inference of encoder on gpu0: +8.5 %" in tab.page.inner_text("#marks")


def test_link_of_an_alert_shows_the_range_around_its_time(open_page):
    tab = open_page("?at=2026-05-28T12:00:00Z")
    tab.page.wait_for_selector("#trend:has-text('24 h around')")
    marks = [url for url in tab.requested if "/api/marks" in url][-1]
    times = parse_qs(urlsplit(marks).query)
    assert times == {"since": ["2026-05-28T00:00:00.000Z"], "until": ["2026-05-29T00:00:00.000Z"]}
    assert "show the present" in tab.page.inner_text("#trend-linked")


def test_empty_loading_and_refused_charts_say_so_without_controls(open_page):
    tab = open_page("?device=gpu99")

    def shown():
        controls = [one for one in tab.page.locator(CONTROLS).all() if one.is_visible()]
        return tab.page.inner_text("#trend"), len(controls)

    tab.page.wait_for_selector("#trend .message:has-text('No cost')")
    assert shown() == ("No cost at constant price in the last 24 h for gpu99.", 0)
    # An answer that does not come.
    tab.page.route("**/api/trend?*", lambda _: None)
    tab.page.select_option("#trend-field", "probe.latency_p50_ms")
    assert shown() == ("Loading latency p50, ms…", 0)
    tab.page.unroute_all(behavior="ignoreErrors")
    for query, words in REFUSED.items():
        open_page(query)
        tab.page.wait_for_selector("#trend .message.bad")
        text, controls = shown()
        assert (words in text, controls) == (True, 0), query
    assert all("400" in text for _, text in tab.console)
    tab.console.clear()


def test_one_line_a_model_by_default_with_its_outliers_thin(open_page):
    tab = open_page("?probe=many")
    drawn(tab, "many (12 devices)")
    strokes = "lines => lines.map(line => getComputedStyle(line).stroke)"
    colours = tab.page.eval_on_selector_all("#trend .legend line", strokes)
    assert colours[1] == "rgb(179, 32, 27)"
    # More lines than can be told apart are offered in the legend.
    tab.page.click("#trend-more summary")
    tab.page.select_option("#trend-group", "series")
    tab.page.wait_for_selector("#trend .message:has-text('8 of 12 lines are shown')")
    assert address(tab) == {"probe": ["many"], "group": ["series"]}
    assert tab.page.inner_text("#trend details summary >> nth=0") == "4 more"


@pytest.mark.parametrize("width_px", [pytest.param(1280, marks=pytest.mark.soak), 375])
def test_trend_has_no_accessibility_violations(open_page, width_px):
    tab = open_page("?scale=change", width_px)
    drawn(tab)
    for summary in ("#trend-more", "#marks-box", "#trend details:visible"):
        tab.page.click(f"{summary} > summary >> nth=0")
    tab.page.focus("#trend .mark")
    for scheme in ("light", "dark"):
        tab.page.emulate_media(color_scheme=scheme)
        assert tab.violations("section:has(#trend)") == [], scheme
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width_px
