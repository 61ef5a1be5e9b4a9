"""`costprobe fleet outliers` and `fleet change` on real databases with a planted GPU and a planted rollout."""

import csv
import io
from contextlib import ExitStack

import pytest
from click.testing import CliRunner
from costprobe.core.line_protocol import render
from costprobe.core.periods import iso
from costprobe.core.records import NS_PER_S
from costprobe.ui.cli.main import main
from fakes import fleet_gpus
from fakes.command import of_fleet
from fakes.documents import checked
from fakes.page_examples import missing_lines
from fakes.servers import Prometheus, fetch, get, running

DATABASE = "gpus"


@pytest.fixture
def enter():
    """Enters contexts until the end of the test."""
    with ExitStack() as stack:
        yield stack.enter_context


@pytest.fixture
def pushed(request):
    """The database that the hosts push to."""

    def filled(kind):
        server = request.getfixturevalue({"influxql": "influxdb"}.get(kind, kind))
        if kind == "influxql":
            server.query(f'CREATE DATABASE "{DATABASE}"')
        lines = [render(row).encode() for row in fleet_gpus.rows()]
        for start in range(0, len(lines), 5000):
            body = b"\n".join(lines[start : start + 5000])
            with fetch(f"{server.url}/write?db={DATABASE}", body):
                pass
        if kind == "victoriametrics":
            get(f"{server.url}/internal/force_flush")
        return server.url

    return filled


@pytest.fixture(params=["influxql", "victoriametrics", "prometheus"])
def ask(request, tmp_path, pushed):
    """Runs a command on the period of the fleet."""
    path = tmp_path / "costprobe.toml"
    if request.param == "prometheus":

        class Scraped(Prometheus):
            def __init__(self, folder):
                super().__init__(folder)
                self.backfill("\n".join([*fleet_gpus.scraped(), ""]))

        url = request.getfixturevalue("enter")(
            running(Scraped, tmp_path / "prometheus", "prometheus")
        ).url
        database = ""
    else:
        url, database = pushed(request.param), f'database = "{DATABASE}"\n'
    path.write_text(f'[fleet]\nkind = "{request.param}"\nurl = "{url}"\n{database}')

    def run(*arguments):
        period = [
            "--since",
            iso(fleet_gpus.START_S * NS_PER_S),
            "--until",
            iso(fleet_gpus.END_S * NS_PER_S),
        ]
        done = CliRunner().invoke(main, ["-c", str(path), *of_fleet(*arguments), *period])
        assert (done.exit_code, done.stderr) == (0, ""), done.output
        return done.stdout

    return run


def test_sick_gpu_and_rollout_are_found_with_cause_and_cost(ask):
    found = checked("fleet outliers", ask("outliers", "--within", "label:rack", "--json"))
    by_gpu = {(one["host"], one["device"]): one for one in found["outliers"]}
    causes = {gpu: one["cause"] for gpu, one in by_gpu.items()}
    assert causes == {fleet_gpus.SICK: "clock", fleet_gpus.SHARED: "neighbour"}
    one = by_gpu[fleet_gpus.SICK]
    updated = fleet_gpus.GPUS * len(fleet_gpus.CHANGED)
    tested = fleet_gpus.GPUS * fleet_gpus.HOSTS - updated
    assert (found["tested"], found["untested"], found["updated"]) == (tested, 0, updated)
    assert one["time_excess_low_pct"] < 100 * fleet_gpus.SLOWER < one["time_excess_high_pct"]
    # Half of a month of 730 h at 3.60: its excess of time, and of 400 W at 0.0000001 a joule.
    share = 1 - 1 / (1 + one["time_excess_pct"] / 100)
    energy_share = 1 - 1 / (1 + one["energy_excess_pct"] / 100)
    month = 730 * 0.5 * (3.6 * share + 400 * 3600 * fleet_gpus.PER_J * energy_share)
    assert one["cost_per_month"] == pytest.approx(month, rel=1e-6)
    output = ask("outliers", "--within", "label:rack") + ask("change", "driver", "--window", "1h")
    assert missing_lines("fleet.md", output) == []
    lines = csv.DictReader(io.StringIO(ask("outliers", "--csv")))
    assert {line["host"]: line["cause"] for line in lines} == {"h03": "clock", "h07": "neighbour"}

    found = checked("fleet change", ask("change", "driver", "--window", "1h", "--json"))
    (change,) = found["changes"]
    assert (change["before"], change["after"]) == fleet_gpus.DRIVERS
    effects = change["effects"]
    assert change["hosts"] == effects["time"]["hosts_compared"] == len(fleet_gpus.CHANGED)
    for name in ("time", "energy", "cost"):
        assert effects[name]["change_low_pct"] < -4 < effects[name]["change_high_pct"] < 0
    assert effects["before"]["change_low_pct"] < 0 < effects["before"]["change_high_pct"]
    # The devices of four hosts at half use for 730 h; without the change they would cost more.
    (cost,) = change["costs"]
    month = 730 * 3.6 * 0.5 * fleet_gpus.GPUS * len(fleet_gpus.CHANGED)
    share = 1 - 1 / (1 + effects["cost"]["change_pct"] / 100)
    assert cost["cost_per_month"] == pytest.approx(month * share)
    assert cost["cost_low_per_month"] < cost["cost_per_month"] < cost["cost_high_per_month"] < 0
    found = checked("fleet change", ask("change", "label:release", "--window", "1h", "--json"))
    changes = {(one["before"], one["after"]): one for one in found["changes"]}
    assert {key: one["hosts"] for key, one in changes.items()} == {("r1", "r2"): 3, ("r2", "r1"): 1}
    # Of the three hosts one went back.
    released = changes["r1", "r2"]
    assert (
        released["effects"]["cost"]["change_low_pct"]
        < 0
        < released["effects"]["cost"]["change_high_pct"]
    )
    share = 1 - 1 / (1 + released["effects"]["cost"]["change_pct"] / 100)
    month = 730 * 3.6 * 0.5 * fleet_gpus.GPUS * 2
    assert released["costs"][0]["cost_per_month"] == pytest.approx(month * share)
    text = ask("change", "driver", "--window", "1h")
    assert "a month at the present use (-€" in text
    assert "driver 550.54 → 560.28: 4 hosts" in text
    assert "compared: 4 hosts with" in text
    unchanged = ask("change", "torch", "--window", "1h")
    assert unchanged.startswith("no host changed its torch since ")
    assert unchanged.endswith(f", of {fleet_gpus.HOSTS} hosts\n")
    lines = list(csv.DictReader(io.StringIO(ask("change", "driver", "--window", "1h", "--csv"))))
    assert [line["outcome"] for line in lines] == ["cost", "time", "energy", "before"]
    assert float(lines[0]["cost_per_month"]) == pytest.approx(cost["cost_per_month"])
