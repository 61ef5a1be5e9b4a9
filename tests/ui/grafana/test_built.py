"""The checked-in dashboards of both editions: current, in Grafana's types, and without dead references."""

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from costprobe.core.line_protocol import parse_line
from costprobe.core.schema import SCHEMA
from costprobe.ui.grafana.provisioning import EDITIONS, INFLUXDB
from fakes.shown import boards_of, panels_of
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[3]
BOARDS = {edition: boards_of(edition) for edition in EDITIONS}
QUERIES = {
    f"{title} {target['refId']}": target["query"]
    for title, panel in panels_of(INFLUXDB).items()
    for target in panel["targets"]
}
# InfluxQL functions that InfluxDB 2.x and 3.x have as well as 1.x.
FUNCTIONS = {
    *("abs", "count", "first", "last", "max", "mean", "median", "min", "spread", "sum"),
    *("fill", "non_negative_derivative", "now", "time"),
}


def test_checked_in_dashboards_are_current_and_in_the_wheel():
    done = subprocess.run(
        [sys.executable, "-m", "scripts.dashboards", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    included = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    folder = "costprobe/ui/grafana/dashboards"
    for name in BOARDS[INFLUXDB]:
        assert {f"{folder}/{name}.json", f"{folder}/prometheus/{name}.json"} <= included
    assert not {path for path in included if path.startswith("scripts/")}


@pytest.mark.parametrize("edition", EDITIONS)
def test_dashboard_is_valid_for_grafana(edition):
    register_default_plugins()
    prefix = "costprobe" if edition == INFLUXDB else f"costprobe-{edition}"
    for name, written in BOARDS[edition].items():
        read = json.loads(json.dumps(Dashboard.from_json(written), cls=JSONEncoder))
        assert (read["uid"], read["tags"]) == (f"{prefix}-{name}", [prefix])
        if edition == INFLUXDB:
            # The annotation types model only Grafana's built-in source, not a query.
            compared = json.loads(json.dumps(written))
            for mark in [*read["annotations"]["list"], *compared["annotations"]["list"]]:
                assert mark.pop("target")
            assert read == compared
        other = next(one for one in EDITIONS if one != edition)
        assert f'"type": "{other}"' not in json.dumps(written)
        assert_panels_are_complete(written["panels"], edition)
        assert_variables_are_used(written)


def assert_panels_are_complete(panels, edition):
    for key in ("title", "id"):
        assert len({panel[key] for panel in panels}) == len(panels) >= 10
    taken = set()
    for panel in panels:
        at = panel["gridPos"]
        columns, rows = range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])
        cells = {(x, y) for x in columns for y in rows}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
        for target in panel.get("targets", ()):
            defaults = panel["fieldConfig"]["defaults"]
            assert defaults["thresholds"]["steps"][0] == {"color": "green", "value": None}
            assert panel["type"] == "table" or defaults["unit"]
            assert target["datasource"] == {"type": edition, "uid": "${datasource}"}


def assert_variables_are_used(board):
    there = {variable["name"] for variable in board["templating"]["list"]} - {"datasource"}
    texts = json.dumps([board["panels"], board["annotations"], board["templating"]])
    named = set(re.findall(r"\$\{?(?!__|timeFilter|tag_|datasource|col\b)([a-z_]+)", texts))
    # An unused variable would be a selection without an effect.
    assert named == there


@pytest.mark.parametrize("edition", EDITIONS)
def test_links_of_columns_open_dashboards_of_the_edition_that_have_the_variable(edition):
    found = {board["uid"]: board for board in BOARDS[edition].values()}
    properties = [
        (override["matcher"]["options"], one["value"])
        for panel in panels_of(edition).values()
        for override in panel["fieldConfig"]["overrides"]
        for one in override["properties"]
        if one["id"] == "links"
    ]
    for column, (link,) in properties:
        uid, _, query = link["url"].removeprefix("/d/").partition("?")
        assert query.startswith(f"var-{column}=${{__value.raw}}&${{datasource:queryparam}}&")
        assert column in {one["name"] for one in found[uid]["templating"]["list"]}
    assert {column for column, _ in properties} == {"host", "probe", "service"}


def test_queries_work_on_all_influxdb_versions():
    called = set(re.findall(r"\b([a-z_]+)\(", " ".join(QUERIES.values())))
    assert called <= FUNCTIONS


def test_panels_ask_for_what_the_daemon_writes():
    """Names in queries, against the rows of tests/record and the columns that a query itself makes."""
    written = defaultdict(set)
    for path in (ROOT / "tests/record/fixtures").glob("*_rows.txt"):
        for point in map(parse_line, path.read_text().splitlines()):
            written[point.measurement] |= point.tags.keys() | point.fields.keys()
    offenders = {
        f"{title}: {name}"
        for title, text in QUERIES.items()
        for measurement in re.findall(r'FROM "(\w+)"', text)
        for name in re.findall(r'"(\w+)"', text)
        if measurement in written and name in SCHEMA[measurement].fields
        if name not in written[measurement]
    }
    # The recorded hour is too short for a forecast, no reading failed in it, and all prices are set.
    names = {offender.rpartition(": ")[2] for offender in offenders}
    assert names == {"forecast", "missing", "price_assumed"}


def test_currencies_are_never_summed():
    money = re.compile(r'"(cost\w*|price_rate_per_h|rolling_\w+)"')
    offenders = []
    for title, text in QUERIES.items():
        (source, *_) = re.findall(r'FROM "(\w+)"', text)
        selected = text.rpartition(f' FROM "{source}"')[0]
        by_currency = re.search(r'"currency" =~ /\^\$currency\$/|GROUP BY .*"currency"', text)
        if source in {"device", "cost", "allocation"} and money.search(selected):
            offenders += [] if by_currency else [title]
    assert not offenders
