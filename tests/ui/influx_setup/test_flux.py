"""The Flux tasks, checked by InfluxData's language server: syntax, names and types."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from costprobe.core.schema import SCHEMA, SERVING_RATIOS, SERVING_SUMS
from costprobe.ui.influx_setup.steps import ROLLED, HourlySeries
from costprobe.ui.influx_setup.v2 import deadman_task, rollup_task, string
from fakes.programs import require, skip_unless

ROOT = Path(__file__).parents[3]
SERVER = ROOT / "build" / "flux-lsp" / "node_modules" / "@influxdata" / "flux-lsp-node"
CHECK = ROOT / "tests" / "fakes" / "flux_check.js"
ODD = 'a "quoted" \\ ${name}'


@pytest.fixture(scope="module")
def errors_in():
    """The errors that the language server finds; without one the tests are skipped, in CI they fail."""
    folder = Path(os.environ.get("COSTPROBE_FLUX_LSP") or SERVER)
    require("node")
    skip_unless(folder.is_dir(), "npm's @influxdata/flux-lsp-node is missing: run scripts/servers")

    def check(*scripts):
        done = subprocess.run(
            ["node", str(CHECK)],
            input=json.dumps([str(folder), scripts]),
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return json.loads(done.stdout.splitlines()[-1])

    return check


def test_tasks_are_valid_flux_for_any_bucket_name(errors_in):
    tasks = [
        rollup_task("costprobe", "costprobe_hourly"),
        rollup_task(ODD, f"{ODD}_hourly"),
        deadman_task("costprobe"),
        deadman_task(ODD),
    ]
    assert errors_in(*tasks) == [[]] * len(tasks)


def test_each_numeric_field_is_aggregated_once_and_ratios_of_production_are_divided_later():
    text = rollup_task("b", "b_hourly")
    for rolled in ROLLED:
        kinds = SCHEMA[rolled.measurement].fields
        numbers = {name for name, kind in kinds.items() if kind in (int, float)}
        wanted = sorted(numbers - (SERVING_RATIOS.keys() if rolled.basis == "serving" else set()))
        assert sorted(name for fields in rolled.fields.values() for name in fields) == wanted
        head = f'r._measurement == "{rolled.measurement}"'
        head += f' and r.basis == "{rolled.basis}")' if rolled.basis else ")"
        blocks = [b for b in text.split("\n\n") if head in b]
        named = [field for block in blocks for field in re.findall(r'r\._field == "(\w+)"', block)]
        assert sorted(named) == wanted
    assert set(SERVING_SUMS) <= set(HourlySeries("s", "cost", "serving").fields["sum"])


def test_amounts_are_summed_and_readings_averaged():
    device = HourlySeries("device", "device").fields
    assert {"energy_j", "cost", "carbon_g", "throttle_power_s"} <= set(device["sum"])
    assert {"power_w", "util_pct", "price_rate_per_h"} <= set(device["mean"])
    assert "cost_per_inference" in HourlySeries("cost", "cost", "probe").fields["median"]


def test_quoted_text_contains_no_expression():
    assert string('a"b\\c${d}$') == '"a\\"b\\\\c\\${d}$"'
