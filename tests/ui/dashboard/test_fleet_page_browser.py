"""The fleet's page in Chromium: the heat map, the way to a host's page, stale figures, accessibility."""

import pytest
from fakes.paged_fleet import Recipe
from page_servers import FleetServer

pytestmark = pytest.mark.timeout(900)
HOSTS, GPUS = 5, 4
RECIPE = Recipe(
    hosts=HOSTS,
    gpus=GPUS,
    sick={("h03", "gpu1"): 0.12, ("h00", "gpu2"): 0.06},
    silent=("h04",),
    untested=("h02",),
    every_s=600,
)
# Tables that are wider than their place.
WIDE = """() => ["#units", "#spend", "#outliers .scroll"].filter((name) => {
  const place = document.querySelector(name);
  return place.scrollWidth > place.clientWidth;
})"""
SICK = "#map [data-host=h03][data-device=gpu1]"


@pytest.fixture(scope="module")
def server():
    server = FleetServer(RECIPE)
    yield server
    server.stop()


@pytest.fixture
def open_fleet(server, tab_of):
    def start(query="", **options):
        tab = tab_of(f"{server.address.url}{query}", **options)
        tab.page.wait_for_selector("#map .heat")
        return tab

    return start


def test_heat_map_shows_each_gpu_and_leads_to_the_page_of_its_host(open_fleet):
    tab = open_fleet()
    page = tab.page
    cells = page.eval_on_selector_all(
        "#map .heat .cell", "cells => cells.map(cell => cell.className)"
    )
    assert len(cells) == HOSTS * GPUS
    assert [cells.count(name) for name in ("cell s3 listed", "cell none")] == [1, GPUS]
    assert sum("silent" in name for name in cells) == GPUS
    assert page.get_attribute(SICK, "class") == "cell s3 listed"
    assert "% against its peers, outlier" in page.get_attribute(SICK, "aria-label")
    assert tab.text("#change").startswith("h03 gpu1 needs ")
    # Until the tiles of all currencies are there, nothing below them is shown, which would move down.
    assert page.is_visible("#change")
    page.evaluate("() => document.getElementById('main').className = 'asking'")
    assert not page.is_visible("#change")
    page.wait_for_selector("#change")
    assert "1 silent: h04 for 20 min" in tab.text("[data-tile=Hosts]")
    tiles = page.locator("#spend-now .tile").evaluate_all(
        "all => all.map(one => one.scrollWidth - one.clientWidth)"
    )
    assert tiles == [0] * 6
    page.click(SICK)
    page.wait_for_selector("#gpu a")
    assert page.get_attribute("#gpu a", "href").startswith("http://h03:9470/?")
    assert "Cause: clock" in tab.text("#gpu")
    assert "host=h03&device=gpu1" in page.url
    page.focus(SICK)
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.dataset.device") == "gpu0"
    assert tab.violations() == []
    page.emulate_media(color_scheme="dark")
    assert tab.violations() == []
    for width in (375, 1200, 1440):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate(WIDE) == [], width
    assert tab.console == []


def test_address_restores_metric_order_and_group(open_fleet):
    tab = open_fleet("?metric=energy&order=name&group=rack&by=host&label=rack%3Dr0")
    page = tab.page
    page.wait_for_selector("#map .group")
    assert page.is_checked("[name=metric][value=energy]")
    assert tab.text("#map .heat .group") == "r0"
    assert page.get_attribute("#map .heat .row.gpus .cell", "data-host") == "h00"
    page.wait_for_selector("#spend [data-row=h00]")
    page.set_viewport_size({"width": 375, "height": 667})
    assert page.evaluate("document.documentElement.scrollWidth") == 375


def test_figures_of_a_failing_database_are_grey_with_their_age(tab_of, stopped):
    recipe = Recipe(hosts=2, gpus=1, sick={}, silent=(), days=(), every_s=600)
    server = stopped(FleetServer(recipe))
    tab = tab_of(server.address.url)
    server.reader.error = "connection refused"
    server.clock.move(180)
    # A page that becomes visible asks at once.
    tab.page.evaluate(
        "() => setInterval(() => document.dispatchEvent(new Event('visibilitychange')), 200)"
    )
    tab.page.wait_for_selector("#live:has-text('the database does not answer')")
    assert "last answered 3 min ago" in tab.text("header")
    assert "connection refused" in tab.text("main")
    assert "stale" in tab.page.get_attribute("#spend-now", "class")
    server.reader.error = ""
    server.clock.move(60)
    tab.page.wait_for_selector("#live:text-is('live')")
