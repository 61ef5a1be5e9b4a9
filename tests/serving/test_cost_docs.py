"""The examples of docs/cost.md are what the functions of the daemon compute."""

import re
import tomllib
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from costprobe.configuration import AnyPlan
from costprobe.core.records import NS_PER_S, Device
from costprobe.core.statistics import RollingWindows
from costprobe.core.units import KWH_J
from costprobe.devices.charges import charges_of
from costprobe.devices.server import ServerInterval, ServerUse
from costprobe.pricing.book import PriceBook, Terms
from costprobe.pricing.electricity import CarbonBook, CarbonConfig, ElectricityConfig, emission
from costprobe.pricing.plans import Rate, parse_spot
from costprobe.pricing.timed import TimedValues
from costprobe.probing.cost import cost_sample
from costprobe.probing.rows import per_million_tokens
from costprobe.savings.supply import break_even_share
from costprobe.serving.allocation import Claim, DeviceBill, DeviceUse, allocate
from costprobe.serving.cost import RollingRatio, service_cost
from costprobe.serving.meter import Counts, ServedWindow
from costprobe.serving.settings import size_of
from costprobe.serving.tokens import TokenWeighing, Weights, decode_batch, mean_context
from costprobe.unit_costs.change import CostFactors, split_change
from fakes.arithmetic import by_hand, is_as_written
from fakes.runs import probe_run
from pydantic import TypeAdapter

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "cost.md").read_text()
EXAMPLES = tomllib.loads(
    Path(__file__).with_name("cost_examples.toml").read_text(), parse_float=Decimal
)["case"]
ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)
HOUR_S = 3600
SLICES = 7


def time_ns(example):
    return int(example.get("at", ANY_TIME).timestamp()) * NS_PER_S


def devices_of(example):
    count, model = example.get("gpus", 1), "NVIDIA H100 80GB HBM3"
    boards = [Device(f"gpu{i}", "gpu", f"GPU-{i}", model) for i in range(count)]
    slices = enumerate(example.get("mig", ()))
    of_board = {"parent": "gpu0", "slices_of": SLICES}
    return boards + [
        Device(f"gpu0.mig{i}", "mig", f"MIG-{i}", "MIG", slices=held, **of_board)
        for i, held in slices
    ]


def rate(example):
    plans = [TypeAdapter(AnyPlan).validate_python(plan) for plan in example["plans"]]
    now_ns = time_ns(example)
    known = TimedValues(tuple(parse_spot(example["prices"], now_ns)) if "prices" in example else ())
    book = PriceBook(plans, None, devices_of(example), spots=lambda: {"spot": known})
    found = book.terms(example.get("device", "gpu0"), now_ns).rate
    assert sum(amount for _, amount in found.parts) == found.per_hour
    parts = {name.replace(" ", "_"): amount for name, amount in found.parts}
    return {**parts, "per_hour": found.per_hour}


def electricity(example):
    tariff = ElectricityConfig.model_validate(example["electricity"])
    plan = {"plan": "on_demand", "per_hour": 1, "electricity_included": False}
    plans = [TypeAdapter(AnyPlan).validate_python(plan)]
    terms = PriceBook(plans, tariff, devices_of(example)).terms("gpu0", time_ns(example))
    return {"per_j": terms.electricity_per_j, "per_kwh": terms.electricity_per_j * KWH_J}


def terms_of(per_hour, electricity_per_kwh):
    included = not electricity_per_kwh
    priced = Rate("on_demand", "USD", Decimal(per_hour), included, "an example")
    return Terms(priced, float(electricity_per_kwh) / KWH_J)


def server(example):
    length_s, power_w = example["length_s"], float(example["power_w"])
    energy_j, end_ns = power_w * length_s, length_s * NS_PER_S
    interval = ServerInterval(0, end_ns, energy_j, "poll", power_w)
    per_j = float(example["electricity_per_kwh"]) / KWH_J
    return ServerUse(interval, float(example["devices_power_w"] * length_s), "", per_j).fields()


def device(example):
    terms = terms_of(example["per_hour"], example["electricity_per_kwh"])
    end_ns = example["duration_s"] * NS_PER_S
    (charge,) = charges_of(lambda _: terms, 0, end_ns, lambda *_: float(example["energy_j"]))
    return {"cost": charge.cost}


def probe(example):
    tariff, inferences = example.get("electricity_per_kwh", 0), example["inferences"]
    per_hour, energy_j = example["per_hour"], example.get("energy_j")
    cost = cost_sample(
        terms_of(per_hour, tariff),
        terms_of(example.get("reference_per_hour", per_hour), tariff),
        float(example["window_s"]) / inferences,
        None if energy_j is None else float(energy_j) / inferences,
    )
    result = probe_run(inferences=inferences)
    tokens = {
        f"cost_per_million_{name}": per_million_tokens(cost.per_inference, result, example[name])
        for name in ("tokens_in", "tokens_out")
        if name in example
    }
    known = {"cost_per_inference": cost.per_inference, "cost_hardware": cost.hardware}
    return {**known, "cost_energy": cost.energy, "cost_reference": cost.reference, **tokens}


def rolling(example):
    windows = RollingWindows(example["every_s"])
    for i, cost in enumerate(example["costs"]):
        windows = windows.with_sample(i * example["every_s"] * NS_PER_S, float(cost))
    found = windows.summaries((len(example["costs"]) - 1) * example["every_s"] * NS_PER_S)["1h"]
    return {"median": found.median, "iqr": found.iqr, "coverage": found.coverage}


def rolling_served(example):
    windows, quarter_s = RollingRatio(), HOUR_S / 4
    for i, (cost, served) in enumerate(zip(example["costs"], example["inferences"], strict=True)):
        windows.add(int((i + 1) * quarter_s * NS_PER_S), quarter_s, float(cost), served)
    found = windows.summaries(HOUR_S * NS_PER_S)
    return {"per_inference": found["rolling_1h"], "coverage": found["rolling_1h_coverage"]}


def split(example):
    before, after = (
        CostFactors(**{name: float(value) for name, value in example[when].items()})
        for when in ("before", "after")
    )
    found = split_change(before, after)
    assert sum(found.parts.values()) == pytest.approx(found.log_ratio, rel=1e-12)
    parts = {name.replace(" ", "_"): part for name, part in found.parts.items()}
    return {**parts, "change": found.log_ratio}


def carbon(example):
    config = CarbonConfig.model_validate(example["carbon"])
    book = CarbonBook(config, None, devices_of(example))
    found = book.intensity(example.get("device", "gpu0"), time_ns(example))
    return {"g": emission(float(example["energy_j"]), found).g}


def use_of(example):
    def of(given, *names):
        return {name: float(given[name]) for name in names if name in given}

    claims = (
        Claim(claim["service"], **of(claim, "busy_s", "share"))
        for claim in example.get("claims", ())
    )
    return DeviceUse(
        "gpu0",
        hardware=Decimal(example["hardware"]),
        energy=Decimal(example["energy"]),
        probing_energy=example.get("probing_energy"),
        claims=tuple(claims),
        **{"duration_s": float(HOUR_S), **of(example, "duration_s", "busy_s", "probing_s")},
    )


def allocation(example):
    found = allocate(use_of(example))
    whole = Decimal(example["hardware"]) + Decimal(example["energy"])
    assert sum(line.cost for line in found.lines) == whole
    return {"_".join(filter(None, (line.service, line.part))): line.cost for line in found.lines}


def board(example):
    """Return what each MIG device and the rest of the board is charged, as in the daemon."""
    plan = {"plan": "on_demand", "per_hour": example["hardware"], "electricity_included": False}
    plans = [TypeAdapter(AnyPlan).validate_python(plan)]
    tariff = ElectricityConfig(tariff_per_kwh=Decimal(example["energy"]))
    book = PriceBook(plans, tariff, devices_of(example))
    found = {}
    for each in devices_of(example):
        terms = book.terms(each.name, 0)
        charged = charges_of(lambda _, of=terms: of, 0, int(HOUR_S) * NS_PER_S, lambda *_: KWH_J)
        found[each.name.rpartition(".")[2]] = charged[0].cost
    found["idle"] = found.pop("gpu0")
    return found


def token_weights(example):
    names = ("requests", "tokens_in", "tokens_out", "decode_request_s")
    counts = Counts(**{name: float(example[name]) for name in names})
    batch = decode_batch(counts, float(example["busy_s"]), servers=1)
    weights = TokenWeighing(size=size_of(example["parameters"]), batch=batch).weights("", counts)
    return {
        "batch": batch,
        "context": mean_context(counts),
        "token_in_us": weights.token_in * 1e6,
        "token_out_us": weights.token_out * 1e6,
    }


def served(example):
    cost, busy_s = Decimal(example["cost"]), float(example["busy_share"]) * HOUR_S
    use = DeviceUse("gpu0", float(HOUR_S), cost, Decimal(0), busy_s, claims=(Claim("chat"),))
    names = ("requests", "tokens_in", "tokens_out", "cached_tokens", "prefill_s", "decode_s")
    counts = Counts(**{name: float(example[name]) for name in names if name in example})
    window = ServedWindow("chat", "vllm", 0, HOUR_S * NS_PER_S, {"m": counts})
    weights = (float(example.get(f"weight_{kind}", 0)) for kind in ("out", "cached"))
    weighing = TokenWeighing(Weights(1.0, *weights))
    bills = {"gpu0": DeviceBill(allocate(use))}
    return service_cost(window, ["gpu0"], bills, weighing).total.figures()


def break_even(example):
    electricity_per_hour = Decimal(example.get("electricity_per_hour", 0))
    fixed, rented = Decimal(example["fixed_per_hour"]), Decimal(example["on_demand_per_hour"])
    return {"share": break_even_share(fixed, rented, electricity_per_hour)}


def title(example):
    return f"{example['example']} {'; '.join(example['by_hand'].values())}"


@pytest.mark.parametrize("example", EXAMPLES, ids=title)
def test_example_equals_the_computation_of_the_daemon(example):
    found = globals()[example["example"]](example)
    for name, line in example["by_hand"].items():
        expression, _, written = line.rpartition(" = ")
        assert is_as_written(by_hand(expression), written), line
        assert is_as_written(found[name], written), (line, found[name])


def test_arithmetic_of_the_page_is_that_of_the_examples():
    shown = re.findall(r"^  (\w+ = .+ = .+)$", GUIDE, re.MULTILINE)
    computed = {f"{name} = {line}" for case in EXAMPLES for name, line in case["by_hand"].items()}
    assert len(shown) > 40
    assert [line for line in shown if line not in computed] == []
