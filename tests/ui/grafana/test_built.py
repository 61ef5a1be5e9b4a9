"""The checked-in dashboards match the generating code and the types of Grafana."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from costprobe.ui.grafana.provisioning import EDITIONS, boards
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[3]
TITLES = {
    "energy.json": "costprobe: energy and carbon",
    "fleet.json": "costprobe: fleet",
    "health.json": "costprobe: agent health",
    "home.json": "costprobe: home",
    "host.json": "costprobe: one host",
    "model.json": "costprobe: one model's cost",
    "prices.json": "costprobe: prices and what-if",
    "production.json": "costprobe: production cost",
}


def test_checked_in_dashboards_are_current():
    done = subprocess.run(
        [sys.executable, "-m", "scripts.dashboards", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_package_contains_all_dashboards_with_unique_ids():
    found = {name: json.loads(text) for name, text in boards().items()}
    assert {name: board["title"] for name, board in found.items()} == TITLES
    for name, board in found.items():
        assert board["uid"] == f"costprobe-{name.removesuffix('.json')}"
        assert board["tags"] == ["costprobe"]


def test_no_panel_divides_by_what_was_not_counted():
    # Between two windows a counter does not grow: 0 / 0 would be a gap with an error.
    board = json.loads(boards("prometheus")["production.json"])
    divided = [
        target["expr"]
        for panel in board["panels"]
        for target in panel.get("targets", ())
        if " / " in target.get("expr", "")
    ]
    assert divided
    assert [text for text in divided if " > 0)" not in text and "> 0" not in text] == []


@pytest.mark.parametrize("name", TITLES)
def test_dashboard_round_trips_through_the_types_of_grafana(name):
    register_default_plugins()
    text = boards()[name]
    read = json.loads(json.dumps(Dashboard.from_json(json.loads(text)), cls=JSONEncoder))
    written = json.loads(text)
    # The annotation types model only Grafana's built-in source, not a query.
    for board in (read, written):
        for marks in board["annotations"]["list"]:
            assert marks.pop("target")
    assert read == written


@pytest.mark.parametrize("name", TITLES)
def test_panel_titles_are_unique(name):
    titles = [panel["title"] for panel in json.loads(boards()[name])["panels"]]
    assert len(set(titles)) == len(titles) >= 10


@pytest.mark.parametrize("edition", EDITIONS)
def test_links_of_columns_open_dashboards_of_the_edition_that_have_the_variable(edition):
    found = {board["uid"]: board for board in map(json.loads, boards(edition).values())}
    properties = [
        (override["matcher"]["options"], one["value"])
        for board in found.values()
        for panel in board["panels"]
        if panel["type"] == "table"
        for override in panel["fieldConfig"]["overrides"]
        for one in override["properties"]
        if one["id"] == "links"
    ]
    for column, (link,) in properties:
        uid, _, query = link["url"].removeprefix("/d/").partition("?")
        assert query.startswith(f"var-{column}=${{__value.raw}}&${{datasource:queryparam}}&")
        assert column in {one["name"] for one in found[uid]["templating"]["list"]}
    assert {column for column, _ in properties} == {"host", "probe", "service"}


def test_wheel_contains_the_dashboards():
    included = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    folder = "costprobe/ui/grafana/dashboards"
    assert {f"{folder}/{name}" for name in TITLES} <= included
    assert {f"{folder}/prometheus/{name}" for name in TITLES} <= included
    assert not {path for path in included if path.startswith("scripts/")}
