"""The counters and the rules in a real Prometheus, with answers known from the rows."""

import json
import shutil
import subprocess
import time

import pytest
from click.testing import CliRunner
from costprobe.adapters.store.write import Store
from costprobe.core.schema import make_point
from costprobe.ui.cli.main import main
from fakes.clock import FakeClock
from fakes.pages import served
from fakes.programs import require
from fakes.servers import Prometheus, get, running
from fakes.shown import ANSWERS
from history import END_S, HISTORY_S, RULES, sum_of

HOUR_S = 3600


def test_increase_of_a_counter_is_the_sum_of_the_rows(prometheus):
    found, wanted = {}, {}
    for query, (measurement, field, tags) in ANSWERS["counters"].items():
        ((_, found[query]),) = prometheus.query(query, END_S)
        wanted[query] = pytest.approx(sum_of(measurement, field, HOUR_S, **tags), rel=0.01)
    assert found == wanted
    # Without extrapolation the difference of two scrapes is exact.
    ((_, spent),) = prometheus.query(
        "sum(costprobe_cost_total) - sum(costprobe_cost_total offset 1h)", END_S
    )
    assert spent == pytest.approx(sum_of("device", "cost", HOUR_S), rel=1e-9)
    ((_, total),) = prometheus.query("sum(costprobe_cost_total)", END_S)
    assert total == pytest.approx(sum_of("device", "cost", HISTORY_S), rel=1e-12)


def test_expressions_of_the_rules_are_the_ratios_of_the_rows(prometheus):
    groups = json.loads(get(f"{prometheus.url}/api/v1/rules"))["data"]["groups"]
    assert {group["name"]: len(group["rules"]) for group in groups} == {
        "costprobe-cost": 12,
        "costprobe-alerts": 10,
    }
    services = 'sum by (service) (increase(costprobe_service_{}_total{{service="chat"}}[1h]))'
    ((labels, share),) = prometheus.query(
        f"{services.format('idle_cost')} / {services.format('cost')}", END_S
    )
    whole = {"service": "chat", "basis": "serving"}
    own = [
        sum_of("cost", field, HOUR_S, **whole)
        - sum_of("cost", field, HOUR_S, **whole, served_model="base")
        - sum_of("cost", field, HOUR_S, **whole, served_model="tuned")
        for field in ("cost_idle", "cost_total")
    ]
    assert (labels, share) == ({"service": "chat"}, pytest.approx(own[0] / own[1], rel=1e-6))


def test_prometheus_scrapes_openmetrics_and_evaluates_the_rules(tmp_path):
    clock = FakeClock(time.time_ns())
    store = Store.open(tmp_path / "costprobe.db", clock)
    device = {"host": "h", "device": "gpu0", "currency": "EUR"}
    store.append([make_point("device", device, {"cost": 0.1}, clock.time_ns())])
    with (
        served(store, clock) as target,
        running(
            Prometheus, tmp_path / "prometheus", "prometheus", targets=[target], rules=[RULES]
        ) as server,
    ):
        deadline = time.monotonic() + 30
        found = []
        while not found and time.monotonic() < deadline:
            time.sleep(0.1)
            found = server.query("costprobe_cost_total")
        ((labels, value),) = found
        assert (labels["device"], labels["currency"], value) == ("gpu0", "EUR", 0.1)
        metadata = json.loads(get(f"{server.url}/api/v1/metadata", metric="costprobe_cost"))
        (described,) = metadata["data"].get("costprobe_cost", [{}])
        assert described["type"] == "counter"
    store.close()


def test_promtool_accepts_the_rules_and_their_unit_tests(tmp_path, request):
    require("promtool")
    printed = CliRunner().invoke(main, ["prometheus", "rules"])
    assert (printed.exit_code, printed.output) == (0, RULES.read_text())
    (tmp_path / RULES.name).write_text(printed.output)
    tests = [
        shutil.copy(path, tmp_path) for path in sorted(request.path.parent.glob("rules_*test.yml"))
    ]
    for command in (["check", "rules", RULES.name], ["test", "rules", *tests]):
        done = subprocess.run(
            ["promtool", *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
