"""The dashboards that are checked in are those that the code builds, and Grafana's own types fit."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from hatchling.builders.wheel import WheelBuilder

from agent.grafana.boards import boards

ROOT = Path(__file__).parents[2]
TITLES = {
    "energy.json": "infercost: energy and carbon",
    "fleet.json": "infercost: fleet",
    "health.json": "infercost: agent health",
    "host.json": "infercost: one host",
    "model.json": "infercost: one model's cost",
    "prices.json": "infercost: prices and what-if",
    "production.json": "infercost: production cost",
}


def test_the_dashboards_are_not_stale():
    done = subprocess.run(
        [sys.executable, "-m", "scripts.dashboards", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_package_has_them_all_each_with_an_identity_of_its_own():
    found = {name: json.loads(text) for name, text in boards().items()}
    assert {name: board["title"] for name, board in found.items()} == TITLES
    for name, board in found.items():
        assert board["uid"] == f"infercost-{name.removesuffix('.json')}"
        assert board["tags"] == ["infercost"]


@pytest.mark.parametrize("name", TITLES)
def test_read_with_grafanas_types_and_written_again_a_dashboard_is_the_same(name):
    register_default_plugins()
    text = boards()[name]
    read = json.loads(json.dumps(Dashboard.from_json(json.loads(text)), cls=JSONEncoder))
    written = json.loads(text)
    # Of marks the types know only what Grafana's own source asks, not a query.
    for board in (read, written):
        for marks in board["annotations"]["list"]:
            assert marks.pop("target")
    assert read == written


@pytest.mark.parametrize("name", TITLES)
def test_titles_on_a_page_are_told_apart(name):
    titles = [panel["title"] for panel in json.loads(boards()[name])["panels"]]
    assert len(set(titles)) == len(titles) >= 10


def test_the_wheel_holds_the_dashboards():
    included = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert {f"agent/grafana/dashboards/{name}" for name in TITLES} <= included
    assert not {path for path in included if path.startswith("scripts/")}
