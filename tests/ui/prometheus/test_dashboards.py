"""The Prometheus edition of the dashboards: every query, on a real Prometheus."""

import math
import re

import pytest
from costprobe.core.records import NS_PER_S
from fakes.known import EVENTS_NS, NOW_NS
from fakes.shown import boards_of, in_promql, panels_of, shown_from_prometheus, wrong_panels
from history import END_S, SCRAPE_S

EDITION = "prometheus"
BOARDS = boards_of(EDITION)
PANELS = panels_of(EDITION)
EVENTS_S = EVENTS_NS // NS_PER_S


@pytest.fixture(scope="module")
def query(prometheus):
    return lambda text: prometheus.query(text, NOW_NS // NS_PER_S)


def test_every_panel_shows_its_known_answer(query):
    shown = {title: shown_from_prometheus(panel, title, query) for title, panel in PANELS.items()}
    assert wrong_panels(EDITION, shown) == {}


def test_nothing_is_divided_by_what_was_not_counted(prometheus):
    """Two scrapes after the last rows, no counter has grown: 0 / 0 would be a gap with an error."""
    at_s = END_S + 2 * SCRAPE_S
    odd = {
        title: (labels, value)
        for title, panel in PANELS.items()
        for target in panel["targets"]
        for interval in ("7m", "1h")
        for labels, value in prometheus.query(
            in_promql(target["expr"], title, interval=interval), at_s
        )
        if not math.isfinite(value)
    }
    assert odd == {}


def test_annotations_are_the_events_and_alerts_at_their_times(query):
    found = {}
    for annotation in BOARDS["fleet"]["annotations"]["list"]:
        assert annotation["useValueForTime"] is True
        assert annotation["expr"] == annotation["target"]["expr"]
        for labels, time_ms in query(in_promql(annotation["expr"], "fleet")):
            title, text = (
                re.sub(r"{{(\w+)}}", lambda name, labels=labels: labels[name[1]], annotation[key])
                for key in ("titleFormat", "textFormat")
            )
            assert set(annotation["tagKeys"].split(",")) & labels.keys() >= {"host"}
            found[annotation["name"], title, text] = time_ms / 1000 - EVENTS_S
    kinds = ("anomaly", "drift", "price", "software", "fault", "annotation")
    names = ("Drift", "Drift", "Prices", "Software", "Faults", "Annotations")
    wanted = {
        (name, f"{kind} of ranker", "" if kind == "annotation" else f"{kind} cause"): offset
        for offset, (name, kind) in enumerate(zip(names, kinds, strict=True))
    }
    alerts = {("Alerts", "drift", "drift cause"): 1, ("Alerts", "hot", "hot cause"): 3}
    assert found == wanted | alerts


def test_edition_has_every_panel_of_the_description():
    assert PANELS.keys() == panels_of("influxdb").keys()
