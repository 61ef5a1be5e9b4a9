"""Figures of the commands over each kind of database: those that the rows of the fleet say."""

import json
import math
import statistics

import pytest
from costprobe.core.periods import iso
from costprobe.core.records import NS_PER_S
from fakes import fleet
from fakes.cases import check_all
from fakes.command import called, of_fleet
from fakes.documents import checked

HOURS = 2
CURRENCIES = ("USD", "EUR")
START_S = fleet.END_S - HOURS * 3600


@pytest.fixture
def ask(config, tmp_path):
    """Asks a command about the period of the fleet; returns its document."""
    keys = config.model_dump(mode="json", exclude_defaults=True, by_alias=True)
    path = tmp_path / "costprobe.toml"
    path.write_text("[fleet]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in keys.items()))

    def run(command, *words, how="--json"):
        period = ("--since", iso(START_S * NS_PER_S), "--until", iso(fleet.END_S * NS_PER_S))
        done = called(path, *of_fleet(command, *words), *period, *how.split())
        assert done.stderr == ""
        return checked(f"{command} --fleet", done.stdout) if how == "--json" else done.stdout

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
        done = called(path, "status", "--fleet", code=code)
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


def by_currency(costs):
    spent = dict.fromkeys(CURRENCIES, 0.0)
    for one in costs:
        spent[one["currency"]] += one["cost"]
    return spent


def totals(measurement, field, **tags):
    return {name: total(measurement, field, currency=name, **tags) for name in CURRENCIES}


def test_spend_adds_up_to_the_rows_of_the_fleet(ask):
    found = ask("spend", "--by", "host")
    whole = found["total"]
    assert by_currency(whole["costs"]) == pytest.approx(totals("device", "cost"))
    for field in ("energy_j", "carbon_g"):
        assert whole[field] == pytest.approx(total("device", field))
    share = total("device", "carbon_energy_j") / total("device", "energy_j")
    assert whole["carbon_share"] == pytest.approx(share)
    hosts = {part["group"][0]: part for part in found["parts"]}
    assert {host: part["coverage"] for host, part in hosts.items()} == pytest.approx(
        {"h00": 1, "h01": 1, "h02": 0.75, "h03": 1, "h04": 22 / 24, "h05": 1}
    )
    # 1 minus utilization, weighted by the cost of the devices.
    paid, used = [], []
    for gpu in range(fleet.GPUS):
        of_device = rows("device", host="h00", device=f"gpu{gpu}")
        paid.append(math.fsum(row.fields["cost"] for row in of_device))
        used.append(paid[-1] * statistics.fmean(row.fields["util_pct"] for row in of_device))
    idle = 1 - math.fsum(used) / 100 / math.fsum(paid)
    assert hosts["h00"]["costs"][0]["idle_share"] == pytest.approx(idle)


def test_spend_by_service_tenant_and_model_has_a_rest(ask):
    whole = totals("device", "cost")

    def check(by, measurement, field, tags):
        found = ask("spend", "--by", by)
        spent = by_currency(one for part in found["parts"] for one in part["costs"])
        assert spent == pytest.approx(totals(measurement, field, **tags))
        rest = {name: max(0.0, whole[name] - spent[name]) for name in whole}
        assert by_currency(found["rest"]) == pytest.approx(rest)

    check_all(
        check,
        [
            ("service", "allocation", "cost", {}),
            ("label:team", "allocation", "cost", {"team": "search"}),
            ("tenant", "tenant", "cost", {}),
            ("model", "cost", "cost_total", {"basis": "serving", "served_model": ""}),
        ],
    )


def test_compare_divides_sums_of_production_and_takes_medians_of_probes(ask):
    found = ask("compare", "--label", "rack=r0")["models"]
    by_model = {(one["basis"], one["model"]): one for one in found}
    assert set(by_model) == {("serving", "base"), ("serving", "tuned"), ("probe", "ranker")}
    of_model = {"rack": "r0", "basis": "serving", "served_model": "tuned"}
    paid, inferences, tokens = (
        total("cost", field, **of_model) for field in ("cost_total", "inferences", "tokens_out")
    )
    tuned = by_model["serving", "tuned"]
    assert tuned["cost_per_inference"] == pytest.approx(paid / inferences)
    assert tuned["cost_per_million_tokens_out"] == pytest.approx(1e6 * paid * 0.75 / tokens)
    assert tuned["series"] == 2
    medians = [
        statistics.median(
            row.fields["cost_per_inference"]
            for row in rows("cost", basis="probe", host=host, device=f"gpu{gpu}")
        )
        for host in ("h00", "h03")
        for gpu in range(fleet.GPUS)
    ]
    of_probe = by_model["probe", "ranker"]["cost_per_inference"]
    assert of_probe == pytest.approx(statistics.median(medians))
    counted = {(one["model"], one["currency"]): one["series"] for one in ask("compare")["models"]}
    assert (counted["base", "USD"], counted["base", "EUR"]) == (fleet.HOSTS - 1, 1)
    by_gpu = ask("compare", "--by", "gpu_model")["models"]
    assert {(one["basis"], one["group"]) for one in by_gpu} == {
        (basis, model) for basis in ("probe", "serving") for model in fleet.MODELS
    }
    by_driver = ask("compare", "--by", "driver")["models"]
    assert {(one["basis"], one["group"], one["series"]) for one in by_driver} == {
        ("probe", "550", 2),
        ("probe", "550", 4),
        ("probe", "570", 6),
    }


def test_savings_are_spare_devices_at_a_utilization(ask):
    found = ask("savings", "--utilization", "80")["groups"]
    (h100,) = [one for one in found if one["group"] == ["H100"]]
    spent = ask("spend", "--by", "gpu_model")["parts"][0]
    used = 1 - spent["costs"][0]["idle_share"]
    month = total("device", "cost", model="H100") * 730 / HOURS
    needed = math.ceil(6 * used / 0.8)
    assert h100["utilization_share"] == pytest.approx(used)
    assert (h100["devices"], h100["spare"], needed < 6) == (6, 6 - needed, True)
    assert h100["cost_per_month"] == pytest.approx(month)
    assert h100["saving_per_month"] == pytest.approx(month * (6 - needed) / 6)


def test_where_has_one_answer_for_a_probe_and_a_gpu_model(ask):
    """Of one model of GPU the catalogue has no rates; hosts are paid in two currencies."""
    found = ask("where")
    assert found["unpredicted"] == ["ranker: the catalogue has no peak rates of H100"]
    (one,) = found["probes"]
    assert (one["gpu_model"], one["devices"], one["batch"]) == ("NVIDIA L40S", 6, 8)
    latencies = [
        statistics.median(
            row.fields["latency_p50_ms"] for row in rows("probe", host=host, device=f"gpu{gpu}")
        )
        for host in ("h01", "h03", "h05")
        for gpu in range(fleet.GPUS)
    ]
    assert one["latency_p50_ms"] == pytest.approx(statistics.median(latencies))
    assert (one["energy_per_inference_j"], one["cost_per_inference"]) == (0.5, None)
    boards = {board["gpu_model"]: board for board in one["boards"]}
    ends = boards["NVIDIA L4"]["latency_p50_ms"]
    assert ends["low"] < ends["value"] < ends["high"]
    lines = ask("where", "ranker", how="--csv").splitlines()
    assert lines[0].startswith(
        "probe,gpu_model_here,gpu_model,is_measured,fits,batch,latency_p50_ms,"
    )
    assert len(lines) == len(boards) + 1
    text = ask("where", how="")
    assert text.startswith("ranker on 6 x L40S: a sweep would narrow the intervals")
