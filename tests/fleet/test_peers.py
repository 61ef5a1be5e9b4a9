"""`costprobe fleet outliers` and `fleet change` on real databases with a planted GPU and a planted rollout."""

import pytest
from costprobe.core.line_protocol import render
from costprobe.core.periods import iso
from costprobe.core.records import NS_PER_S
from fakes import fleet_gpus
from fakes.command import called
from fakes.documents import checked

USED_SHARE, MONTH_H = 0.5, 730


def excess_share(excess_pct):
    """The part of what an outlier takes that its peers would not."""
    return 1 - 1 / (1 + excess_pct / 100)


@pytest.mark.parametrize("kind", ["influxql", "victoriametrics", "prometheus"])
def test_sick_gpu_and_rollout_are_found_with_cause_and_cost(kind, section, tmp_path):
    path = tmp_path / "costprobe.toml"
    lines = [render(row).encode() for row in fleet_gpus.rows()]
    path.write_text(section(kind, "gpus", lines, fleet_gpus.scraped()))

    def ask(command, *words):
        ends = (iso(time_s * NS_PER_S) for time_s in (fleet_gpus.START_S, fleet_gpus.END_S))
        period = (word for pair in zip(("--since", "--until"), ends, strict=True) for word in pair)
        done = called(path, "fleet", command, *words, *period, "--json")
        assert done.stderr == ""
        return checked(f"fleet {command}", done.stdout)

    found = ask("outliers", "--within", "label:rack")
    by_gpu = {(one["host"], one["device"]): one for one in found["outliers"]}
    causes = {gpu: one["cause"] for gpu, one in by_gpu.items()}
    assert causes == {fleet_gpus.SICK: "clock", fleet_gpus.SHARED: "neighbour"}
    one = by_gpu[fleet_gpus.SICK]
    updated = fleet_gpus.GPUS * len(fleet_gpus.CHANGED)
    tested = fleet_gpus.GPUS * fleet_gpus.HOSTS - updated
    assert (found["tested"], found["untested"], found["updated"]) == (tested, 0, updated)
    assert one["time_excess_low_pct"] < 100 * fleet_gpus.SLOWER < one["time_excess_high_pct"]
    # Half of a month of 730 h at 3.60: its excess of time, and of 400 W at 0.0000001 a joule.
    per_h = fleet_gpus.PRICE_PER_H * excess_share(one["time_excess_pct"])
    per_h += 400 * 3600 * fleet_gpus.PER_J * excess_share(one["energy_excess_pct"])
    month = MONTH_H * USED_SHARE * per_h
    assert one["cost_per_month"] == pytest.approx(month, rel=1e-6)

    (change,) = ask("change", "driver", "--window", "1h")["changes"]
    assert (change["before"], change["after"]) == fleet_gpus.DRIVERS
    effects = change["effects"]
    assert change["hosts"] == effects["time"]["hosts_compared"] == len(fleet_gpus.CHANGED)
    for name in ("time", "energy", "cost"):
        assert effects[name]["change_low_pct"] < -4 < effects[name]["change_high_pct"] < 0
    assert effects["before"]["change_low_pct"] < 0 < effects["before"]["change_high_pct"]
    # The devices of the hosts at half use for 730 h; without the change they would cost more.
    month = MONTH_H * fleet_gpus.PRICE_PER_H * USED_SHARE * fleet_gpus.GPUS
    (cost,) = change["costs"]
    share = excess_share(effects["cost"]["change_pct"])
    assert cost["cost_per_month"] == pytest.approx(month * len(fleet_gpus.CHANGED) * share)
    assert cost["cost_low_per_month"] < cost["cost_per_month"] < cost["cost_high_per_month"] < 0

    found = ask("change", "label:release", "--window", "1h")["changes"]
    changes = {(one["before"], one["after"]): one for one in found}
    assert {key: one["hosts"] for key, one in changes.items()} == {("r1", "r2"): 3, ("r2", "r1"): 1}
    released = changes["r1", "r2"]
    effect = released["effects"]["cost"]
    assert effect["change_low_pct"] < 0 < effect["change_high_pct"]
    # Of the three hosts one went back.
    share = excess_share(effect["change_pct"])
    assert released["costs"][0]["cost_per_month"] == pytest.approx(month * 2 * share)
    assert ask("change", "torch", "--window", "1h")["changes"] == []
