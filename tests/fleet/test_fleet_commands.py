"""`costprobe fleet` over each kind of database: what it prints is what the rows of the fleet say."""

import csv
import io
import json
import math
import statistics
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner
from costprobe.core.records import NS_PER_S
from costprobe.ui.cli.main import main
from fakes import fleet
from fakes.command import of_fleet
from fakes.documents import checked

HOURS = 2
START_S = fleet.END_S - HOURS * 3600


def at(time_s):
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture
def ask(config, tmp_path):
    """Runs a command on the period of the fleet; returns its standard output."""
    keys = config.model_dump(mode="json", exclude_defaults=True, by_alias=True)
    path = tmp_path / "costprobe.toml"
    path.write_text("[fleet]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in keys.items()))

    def run(*arguments):
        period = ["--since", at(START_S), "--until", at(fleet.END_S)]
        done = CliRunner().invoke(main, ["-c", str(path), *of_fleet(*arguments), *period])
        assert (done.exit_code, done.stderr) == (0, ""), done.output
        return done.stdout

    return run


def test_only_the_section_fleet_has_to_be_valid(tmp_path):
    path, unknown_key = tmp_path / "costprobe.toml", "[probing]\ndtuy = 1\n"
    reported = 'probing.dtuy: unknown key; did you mean "duty"?'
    fleet_table = '[fleet]\nkind = "prometheus"\nurl = "http://127.0.0.1:9"\n'
    for text, code, words in (
        (fleet_table + unknown_key, 1, ["is the database of [fleet] up?"]),
        (f"{fleet_table}urll = 1\n{unknown_key}", 2, ["fleet.urll: unknown key", reported]),
        (unknown_key, 2, [reported]),
    ):
        path.write_text(text)
        done = CliRunner().invoke(main, ["-c", str(path), "status", "--fleet"])
        assert done.exit_code == code
        assert [one for one in words if one not in done.stderr] == []


def rows(measurement, **tags):
    return [
        row
        for row in fleet.rows()
        if row.measurement == measurement
        and START_S < row.time_ns // NS_PER_S <= fleet.END_S
        and all(row.tags.get(tag, "") == value for tag, value in tags.items())
    ]


def total(measurement, field, **tags):
    return math.fsum(row.fields.get(field, 0.0) for row in rows(measurement, **tags))


def test_status_lists_silent_hosts_first_then_those_with_faults(ask):
    found = checked("status --fleet", ask("status", "--json"))
    assert (found["hosts"], found["silent"], found["is_partial"]) == (fleet.HOSTS, 1, False)
    assert found["versions"] == {"0.1.0": fleet.HOSTS - 1, "0.2.0": 1}
    assert [state["host"] for state in found["states"]] == [
        "h02",
        "h03",
        "h00",
        "h01",
        "h04",
        "h05",
    ]
    assert {state["host"]: state["faults"] for state in found["states"] if state["faults"]} == {
        "h03": 1
    }
    assert {state["devices"] for state in found["states"]} == {fleet.GPUS}
    silent = found["states"][0]
    assert abs(silent["newest_ns"] / NS_PER_S - fleet.SILENT_S) <= 15
    table = ask("status")
    assert "6 hosts, 1 silent, 12 devices, 1 fault, 0 firing incidents" in table
    assert "silent for 30 min" in table
    groups = checked("status --fleet", ask("status", "--by", "label:rack", "--json"))["groups"]
    assert [(one["group"], one["hosts"], one["silent"]) for one in groups] == [
        ("r0", 2, 0),
        ("r1", 2, 0),
        ("r2", 2, 1),
    ]


def test_spend_adds_up_to_the_rows_of_the_fleet(ask):
    found = checked("spend --fleet", ask("spend", "--by", "host", "--json"))
    whole = found["total"]
    paid = {one["currency"]: one["cost"] for one in whole["costs"]}
    assert paid == pytest.approx(
        {name: total("device", "cost", currency=name) for name in ("USD", "EUR")}
    )
    assert whole["energy_j"] == pytest.approx(total("device", "energy_j"))
    assert whole["carbon_g"] == pytest.approx(total("device", "carbon_g"))
    assert whole["carbon_share"] == pytest.approx(
        total("device", "carbon_energy_j") / total("device", "energy_j")
    )
    hosts = {part["group"][0]: part for part in found["parts"]}
    assert {host: part["coverage"] for host, part in hosts.items()} == pytest.approx(
        {"h00": 1, "h01": 1, "h02": 0.75, "h03": 1, "h04": 22 / 24, "h05": 1}
    )
    used = total_used("h00")
    assert hosts["h00"]["costs"][0]["idle_share"] == pytest.approx(used)
    (line,) = [
        row
        for row in csv.DictReader(io.StringIO(ask("spend", "--csv")))
        if row["currency"] == "EUR"
    ]
    assert float(line["cost"]) == pytest.approx(paid["EUR"])
    assert "€" in ask("spend", "--by", "gpu_model")


def total_used(host):
    """The idle share of a host: 1 minus utilization, weighted by the cost of its devices."""
    paid, used = [], []
    for gpu in range(fleet.GPUS):
        of_device = rows("device", host=host, device=f"gpu{gpu}")
        paid.append(math.fsum(row.fields["cost"] for row in of_device))
        used.append(paid[-1] * statistics.fmean(row.fields["util_pct"] for row in of_device))
    return 1 - math.fsum(used) / 100 / math.fsum(paid)


def test_spend_by_service_tenant_and_model_has_a_rest(ask):
    whole = {name: total("device", "cost", currency=name) for name in ("USD", "EUR")}
    for by, measurement, field, tags in (
        ("service", "allocation", "cost", {}),
        ("label:team", "allocation", "cost", {"team": "search"}),
        ("tenant", "tenant", "cost", {}),
        ("model", "cost", "cost_total", {"basis": "serving", "served_model": ""}),
    ):
        found = checked("spend --fleet", ask("spend", "--by", by, "--json"))
        spent = dict.fromkeys(whole, 0.0)
        for part in found["parts"]:
            for one in part["costs"]:
                spent[one["currency"]] += one["cost"]
        wanted = {name: total(measurement, field, currency=name, **tags) for name in whole}
        assert spent == pytest.approx(wanted), by
        rest = {one["currency"]: one["cost"] for one in found["rest"]}
        assert rest == pytest.approx(
            {name: max(0.0, whole[name] - spent[name]) for name in whole}
        ), by


def test_compare_divides_sums_of_production_and_takes_medians_of_probes(ask):
    found = checked("compare --fleet", ask("compare", "--label", "rack=r0", "--json"))["models"]
    by_model = {(one["basis"], one["model"]): one for one in found}
    assert set(by_model) == {("serving", "base"), ("serving", "tuned"), ("probe", "ranker")}
    of_model = {"rack": "r0", "basis": "serving", "served_model": "tuned"}
    tuned = by_model["serving", "tuned"]
    paid = total("cost", "cost_total", **of_model)
    assert tuned["cost_per_inference"] == pytest.approx(
        paid / total("cost", "inferences", **of_model)
    )
    assert tuned["cost_per_million_tokens_out"] == pytest.approx(
        1e6 * paid * 0.75 / total("cost", "tokens_out", **of_model)
    )
    assert tuned["series"] == 2
    counted = checked("compare --fleet", ask("compare", "--json"))["models"]
    assert {
        (one["model"], one["currency"]): one["series"] for one in counted if one["model"] == "base"
    } == {("base", "USD"): fleet.HOSTS - 1, ("base", "EUR"): 1}
    medians = [
        statistics.median(
            row.fields["cost_per_inference"]
            for row in rows("cost", basis="probe", host=host, device=f"gpu{gpu}")
        )
        for host in ("h00", "h03")
        for gpu in range(fleet.GPUS)
    ]
    assert by_model["probe", "ranker"]["cost_per_inference"] == pytest.approx(
        statistics.median(medians)
    )
    by_gpu = checked("compare --fleet", ask("compare", "--by", "gpu_model", "--json"))["models"]
    assert {(one["basis"], one["group"]) for one in by_gpu} == {
        (basis, model) for basis in ("probe", "serving") for model in fleet.MODELS
    }
    by_driver = checked("compare --fleet", ask("compare", "--by", "driver", "--json"))["models"]
    assert {(one["basis"], one["group"], one["series"]) for one in by_driver} == {
        ("probe", "550", 2),
        ("probe", "550", 4),
        ("probe", "570", 6),
    }
    assert "per 1,000" in ask("compare", "--by", "label:rack")


def test_report_has_the_figures_of_the_other_commands(ask):
    found = checked("report --fleet", ask("report", "--json"))
    spend = checked("spend --fleet", ask("spend", "--by", "service", "--json"))
    assert found["total"] == approximately(spend["total"])
    (by_service,) = [one for one in found["divided"] if one["by"] == "service"]
    assert by_service["parts"] == approximately(spend["parts"])
    assert [one["by"] for one in found["divided"]] == ["service", "model", "tenant"]
    # The simulated fleet has but an hour of the two before.
    assert found["before"] is None
    costs = [one["costs"][0]["cost"] * one["costs"][0]["idle_share"] for one in found["hosts"]]
    assert costs == sorted(costs, reverse=True)
    text = ask("report", "--by", "label:rack")
    for words in (
        "## Spend by rack",
        "| h02 | silent for 30 min |",
        "Not compared with the period",
    ):
        assert words in text
    page = ask("report", "--format", "html")
    assert page.startswith("<!doctype html>")
    assert '<th scope="row">tuned</th>' in page


def test_savings_are_spare_devices_at_a_utilization(ask):
    found = checked("savings --fleet", ask("savings", "--utilization", "80", "--json"))
    (h100,) = [one for one in found["groups"] if one["group"] == ["H100"]]
    used = (
        1
        - checked("spend --fleet", ask("spend", "--by", "gpu_model", "--json"))["parts"][0][
            "costs"
        ][0]["idle_share"]
    )
    paid = total("device", "cost", model="H100")
    assert h100["utilization_share"] == pytest.approx(used)
    needed = math.ceil(6 * used / 0.8)
    assert (h100["devices"], h100["spare"], needed < 6) == (6, 6 - needed, True)
    assert h100["cost_per_month"] == pytest.approx(paid * 730 / HOURS)
    assert h100["saving_per_month"] == pytest.approx(paid * 730 / HOURS * (6 - needed) / 6)
    assert "H100" in ask("savings")
    assert ask("savings", "--by", "host", "--csv").startswith("group,currency,devices,")


def approximately(document):
    """A document with numbers that may differ in their last digits."""
    if isinstance(document, dict):
        return {name: approximately(value) for name, value in document.items()}
    if isinstance(document, list):
        return [approximately(value) for value in document]
    return pytest.approx(document) if isinstance(document, float) else document
