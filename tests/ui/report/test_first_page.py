"""The report of a host with eight GPUs; what it prints of a week is recorded in tests/record."""

import re
import time

import pytest
from costprobe.core.records import Point
from costprobe.ui.report.charts import bar_chart, line_chart, percent_ticks
from costprobe.ui.report.formats import Chart, Document, KeyFigure, Section, page
from costprobe.ui.report.gather import changes, trends
from costprobe.ui.report.model import Bucket, Trend
from costprobe.ui.tables import Table
from costprobe.ui.text import devices_text, short
from fakes.command import called
from fakes.sample_host import COARSE, HOUR_NS, made
from markupsafe import Markup

A4_PAGES = 4


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return made(tmp_path_factory.mktemp("long"), time.time_ns(), 40, COARSE)


@pytest.fixture(scope="module")
def html(config, tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "report.html"
    called(config, "report", "--out", str(file))
    return file


def test_report_prints_on_four_pages_of_a4_without_squeezed_columns(html, browser):
    tab = browser.new_page(viewport={"width": 688, "height": 1000})  # A4 less its margins
    tab.emulate_media(media="print")
    tab.goto(html.as_uri())
    too_wide = tab.evaluate(
        """() => [...document.querySelectorAll("table, th, td")]
        .filter((one) => one.scrollWidth > one.clientWidth + 1
            || one.getBoundingClientRect().right > document.body.clientWidth + 1)
        .map((one) => one.textContent.slice(0, 60))"""
    )
    narrow = tab.evaluate(
        """() => [...document.querySelectorAll("td, th")]
        .filter((one) => one.textContent.trim().length > 12 && one.clientWidth < 60)
        .map((one) => one.textContent.slice(0, 60))"""
    )
    printed = tab.pdf(prefer_css_page_size=True)
    tab.close()
    assert (too_wide, narrow) == ([], [])
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b(?!s)", printed)) <= A4_PAGES


def test_a_word_of_any_length_does_not_widen_the_page(tmp_path, browser):
    word = "w" * 200
    changes = Table(
        ("no.", "time", "kind", "change", "cause"),
        [("1", "2026-11-28 04:17", "annotation", word, word)],
        5,
    )
    span = {"span": (0, 96 * HOUR_NS), "step_ns": HOUR_NS, "value_text": str}
    drawn = line_chart("one", "t", [[Bucket(0, 1.0)]], base=1.0, **span)
    section = Section(word, charts=[Chart(word, Markup(drawn))], tables=[changes], lines=[word])  # noqa: S704 - drawn by our code
    file = tmp_path / "report.html"
    file.write_text(page(Document(word, word, [KeyFigure(word, word, word)], [section])))
    for width in (1440, 375):
        tab = browser.new_page(viewport={"width": width, "height": 900})
        tab.goto(file.as_uri())
        widths = tab.evaluate(
            """() => [document.documentElement.scrollWidth,
            document.querySelector("main").clientWidth,
            document.querySelector("svg").getBoundingClientRect().width]"""
        )
        lines = tab.evaluate(
            """() => [...document.querySelectorAll("td")].map((one) => {
                const text = document.createRange();
                text.selectNodeContents(one);
                return text.getClientRects().length;
            })"""
        )
        tab.close()
        assert widths[0] == width
        assert lines[:2] == [1, 1]  # of the time and the kind
        # A single chart is no larger than one of two.
        assert width == 375 or widths[2] < widths[1] / 2


def test_chart_shows_a_drift_of_eight_percent():
    steps = [
        Bucket(index * HOUR_NS, 0.2 * (1 + (0.084 if index > 90 else 0))) for index in range(96)
    ]
    span = (0, 96 * HOUR_NS)
    drawn = line_chart(
        "one", "t", [steps], base=0.2, span=span, step_ns=HOUR_NS, value_text=lambda v: f"${v:.3f}"
    )
    path = re.search(r'class="line" d="([^"]+)"', drawn)[1]
    heights = [float(point.split()[1]) for point in re.split("[ML]", path)[1:]]
    # At least a third of the height, which is 150 less axes.
    assert max(heights) - min(heights) > 150 / 3
    assert "+5 %" in drawn
    assert ">0 %<" in drawn


def test_chart_of_days_ends_with_its_last_day():
    # Until noon of the third day after 1970-01-05.
    begin_ns, until_ns = 4 * 24 * HOUR_NS, 7 * 24 * HOUR_NS + 12 * HOUR_NS
    days = [Bucket(begin_ns + index * 24 * HOUR_NS, 5.0) for index in range(4)]
    drawn = bar_chart("one", "t", days, (begin_ns, until_ns), lambda v: f"${v:.3f}")
    labels = re.findall(r'text-anchor="(?:start|end)">(1970-[^<]*)<', drawn)
    assert labels == ["1970-01-05", "1970-01-08"]


def test_no_model_is_left_out_for_many_devices():
    """Two probes on 64 devices, and services: all but the one with the fewest samples."""
    steps = [Bucket(0, 5.0)]

    def trend(name, basis, device, subject):
        return Trend(name, basis, device, subject, "USD", steps, None, 5.0)

    found = [
        (900, trend(f"{probe} on gpu{number}", "probe", f"gpu{number}", probe))
        for number in range(64)
        for probe in ("encoder", "ranker")
    ]
    found += [
        (number, trend(f"s{number}", "serving", "gpu0", f"s{number}")) for number in range(1, 24)
    ]
    names = [trend.name for trend in trends(found)]
    assert len(names) == 2 * 64 + 22
    assert {"encoder on gpu63", "ranker on gpu63", "s2", "s23"} <= {*names}
    assert "s1" not in names


def test_axis_encloses_all_values_with_round_percents():
    cases = (
        ((1.0, 1.0, 1.0), [-5, -2.5, 0, 2.5, 5]),
        ((0.92, 1.001, 1.0), [-10, -5, 0, 5]),
        ((0.0, 1.0, 1.0), [-100, -75, -50, -25, 0, 25]),
        ((1.0, 3.0, 1.0), [-50, 0, 50, 100, 150, 200]),
    )
    assert [percent_ticks(*given) for given, _ in cases] == [ticks for _, ticks in cases]


def test_names_of_devices_are_short():
    cases = (
        (["gpu0"], "gpu0"),
        (["gpu1", "gpu0"], "gpu0 and gpu1"),
        (["gpu9", "gpu10", "gpu11"], "gpu9 to gpu11"),
        (["gpu0", "gpu2", "gpu5"], "gpu0, gpu2 and gpu5"),
        (["a0", "a2", "a4", "a6", "a8"], "5 devices"),
        (["cpu"], "cpu"),
        ([], ""),
    )
    assert [devices_text(names) for names, _ in cases] == [words for _, words in cases]
    assert short("7 of gpu0 and gpu1 and gpu2; committed") == "7 of gpu0 to gpu2; committed"


def test_only_equal_changes_within_an_hour_are_one():
    def event(device, minutes, after="$2/h"):
        tags = {"kind": "price", "device": device}
        fields = {"title": f"{device} now costs {after}", "before": "$1/h", "after": after}
        return Point("event", tags, fields, minutes * 60 * 10**9)

    rows = [event("gpu0", 0), event("gpu1", 5), event("gpu2", 90), event("gpu3", 92, "$3/h")]
    found, _ = changes(rows)
    assert [change.devices for change in found] == [("gpu3",), ("gpu2",), ("gpu0", "gpu1")]
    assert found[-1].change_pct == pytest.approx(100)
    assert found[-1].title == "gpu0 and gpu1 cost $2/h each instead of $1/h"
