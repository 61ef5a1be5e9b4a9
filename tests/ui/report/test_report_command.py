"""`costprobe report` on a store with two months of a small host."""

import csv
import io
import json
import re
from decimal import Decimal
from functools import cache
from html.parser import HTMLParser

import pytest
from costprobe.adapters.store.read import SeriesValues
from costprobe.ui.report.gather import HOUR_NS as HOUR
from costprobe.ui.report.gather import Period, spent
from fakes.command import called
from fakes.reported import month

REPORT = ("report", "--by", "team")


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return month(tmp_path_factory.mktemp("month"))


@pytest.fixture(scope="module")
def costprobe(config):
    """What a command prints; each runs once, because a report of two months takes a second."""
    return cache(lambda *arguments: called(config, *arguments).stdout)


@pytest.fixture(scope="module")
def found(costprobe):
    return json.loads(costprobe(*REPORT, "--json"))


@pytest.fixture(scope="module")
def page(config, tmp_path_factory):
    """The HTML page, written to a folder of its own."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    called(config, *REPORT, "--out", str(file))
    assert [path.name for path in file.parent.iterdir()] == ["report.html"]
    return file.read_text()


class Seen(HTMLParser):
    """Tags, ids and addresses of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.addresses, self.ids = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            if name in ("src", "href", "action", "data", "srcset"):
                self.addresses.append(value)
            if name == "id":
                self.ids.append(value)


def test_spend_by_a_label_adds_up_in_every_format(costprobe, found, page):
    (spend,) = found["spend"]
    parts = {part["value"]: Decimal(part["cost"]) for part in spend["by_label"]}
    assert found["label"] == "team"
    assert float(parts["retail"]) == pytest.approx(2592, abs=8)
    assert sum(parts.values()) == Decimal(spend["cost"])
    rows = list(csv.DictReader(io.StringIO(costprobe(*REPORT, "--format", "csv"))))
    assert parts["retail"] in {
        Decimal(row["value"]) for row in rows if row["name"] == "team=retail"
    }
    assert "| retail |" in costprobe(*REPORT, "--format", "md")
    assert "By team, in EUR" in page
    assert json.loads(costprobe("report", "--since", "1d", "--json"))["label"] is None


def test_spend_by_a_label_of_the_hosts_uses_the_devices():
    """Without services nothing is allocated; a label that changed divides the cost in time."""
    whole = Period(0, 4 * HOUR)
    costs = []
    for team, hours in (("a", (1, 2)), ("b", (3, 4))):
        series = SeriesValues({"device": "gpu0", "currency": "USD", "team": team}, [], [])
        for hour in hours:
            series.add(hour * HOUR, 1.0)
        costs.append(series)
    (spend,) = spent(costs, [], whole, 3600.0, "team")
    assert {part.name: float(part.amount) for part in spend.by_label} == {"a": 2.0, "b": 2.0}


def test_html_page_is_one_file_without_external_resources(page):
    seen = Seen(page)
    assert not seen.tags & {"script", "link", "img", "iframe", "object", "form", "base"}
    assert all(address.startswith("#") for address in seen.addresses)
    assert len(seen.ids) == len(set(seen.ids))
    assert not re.search(r"url\(|@import|https?://|\x1b", page)
    for words in ("default-src 'none'", "@media print", "prefers-color-scheme: dark"):
        assert words in page
    assert page.count('role="img"') == 4


def test_untrusted_text_is_escaped_in_every_format(costprobe, found, page):
    (fault,) = (change for change in found["changes"] if change["kind"] == "fault")
    assert fault["title"].startswith("=cmd")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    text = costprobe(*REPORT, "--format", "md")
    assert "<script" not in text.replace("\\<script", "")
    assert "\x1b" not in text
    assert "(3 times)" in text
    for row in csv.DictReader(io.StringIO(costprobe(*REPORT, "--format", "csv"))):
        assert not {row["name"][:1], row["value"][:1]} & {"=", "+", "@"}
