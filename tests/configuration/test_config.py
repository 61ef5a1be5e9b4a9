"""The configuration: valid files are accepted, others rejected with all errors."""

import os
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
import tomli_w
from costprobe.configuration import load, parse
from costprobe.core.config.load import ConfigError, as_toml_tables
from costprobe.core.config.location import MAX_FILE_BYTES
from costprobe.core.units import format_duration, parse_duration_s, parse_size_bytes
from hypothesis import given
from hypothesis import strategies as st

FILE = Path("costprobe.toml")
SERVICE = '[[service]]\nname = "s"\nengine = "vllm"\nurl = "http://h"\ndevices = ["cpu"]\n'
REFUSED = Path(__file__).parent / "refused.txt"
FULL = (Path(__file__).parents[1] / "fakes/full.toml").read_text()


def problems(text):
    with pytest.raises(ConfigError) as caught:
        parse(text, FILE)
    return caught.value.problems


def test_refused_files_have_these_messages():
    """Each file of `refused.txt` with all its problems; COSTPROBE_RECORD=1 writes them again."""
    files = [block.partition("\n=> ")[0] for block in REFUSED.read_text().split("\n\n")]
    found = "\n\n".join("\n=> ".join([text, *problems(text)]) for text in files)
    if os.environ.get("COSTPROBE_RECORD") == "1":
        REFUSED.write_text(found)
    assert found == REFUSED.read_text()
    assert any("not valid TOML" in problem for problem in problems("[host\n"))


def test_full_file_is_parsed():
    config = parse(FULL, FILE)
    assert config.probe[0].every_s == 90
    assert config.probe[0].latency_bound_s == pytest.approx(0.05)
    assert config.probe[0].memory_cap_bytes == 4 * 2**30
    assert config.probing.duty == pytest.approx(0.02)
    assert config.price[1].valid_from == date(2026, 6, 1)
    # Amounts are exact.
    assert config.price[0].per_hour == Decimal("2.176")
    assert config.price[1].purchase_price == Decimal("15000.10")


def test_shown_configuration_can_be_parsed():
    servers = (
        '[[probe]]\nname = "own"\nkind = "module"\nmodule = "shop.models:ranker"\n'
        '[[probe]]\nname = "c"\nkind = "openai"\nurl = "https://h/v1"\nmodel = "m"\n'
        'token = "credential:chat"\n[[probe]]\nname = "k"\nkind = "kserve"\nurl = "http://h"\n'
        'model = "m"\ninputs = [{ name = "x", datatype = "FP32", shape = [1, 2], fill = 0.5 }]\n'
        '[[probe]]\nname = "t"\nkind = "timm:resnet18"\n'
    )
    config = parse(FULL + servers, FILE)
    assert parse(tomli_w.dumps(as_toml_tables(config)), FILE) == config


def test_error_of_a_missing_file_names_config_init(tmp_path):
    with pytest.raises(ConfigError, match=r"config init .*\.toml"):
        load(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match=r"not a regular file.*another file with -c"):
        load(tmp_path)


def test_huge_files_and_binary_files_are_rejected(tmp_path):
    path = tmp_path / "x.toml"
    path.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(ConfigError, match="more than"):
        load(path)
    path.write_bytes(b"\x80")
    with pytest.raises(ConfigError, match="UTF-8"):
        load(path)


def test_durations_and_sizes():
    durations = {"5m": 300, "1.5s": 1.5, "250ms": 0.25, "1h 30m": 5400, "3y": 3 * 8760 * 3600}
    assert {text: parse_duration_s(text) for text in durations} == pytest.approx(durations)
    for text in ("", "5", "m", "5 minutes", "-1s", "1e3s", "5m!"):
        with pytest.raises(ValueError, match="duration"):
            parse_duration_s(text)
    assert (parse_size_bytes("4GiB"), parse_size_bytes("1.5 kB")) == (4 * 2**30, 1500)
    with pytest.raises(ValueError, match="size"):
        parse_size_bytes("4 gigs")


@given(st.integers(1, 10**7))
def test_formatted_durations_parse_to_the_same_value(seconds):
    assert parse_duration_s(format_duration(float(seconds))) == seconds


def probe_of(table):
    return parse(f'[[probe]]\nname = "p"\n{table}\n', FILE).probe[0]


def test_probe_kinds_with_a_model_source():
    probe = probe_of('kind = "torchvision:resnet50"\nweights = "/w.pth"\ncold = true')
    assert (probe.source, probe.model, probe.identity) == ("torchvision", "resnet50", probe.kind)
    assert probe.measured_dtype is None
    assert not probe.carries_energy
    probe = probe_of('kind = "pt2:/models/a.pt2"\ninputs = [{ shape = [8], dtype = "int64" }]')
    assert (probe.source, probe.model) == ("pt2", "/models/a.pt2")
    assert probe.inputs[0].shape == (8,)
    assert probe_of("").measured_dtype == "fp32"


def test_default_deferral_is_30_s_or_half_the_period():
    assert probe_of("").deferral_s == 30
    assert probe_of('every = "10s"').deferral_s == 5


def test_quality_is_of_a_probe_a_service_or_each_of_its_models():
    chat = 'kind = "openai"\nmodel = "m"\nurl = "http://127.0.0.1:9"\n'
    for table in ("", chat):
        assert probe_of(f"{table}quality = 34").quality == 34
        assert probe_of(table).quality is None
    each = parse(SERVICE + "quality = { base = 0.8, 'org/tuned' = 0.9 }", FILE).service[0].quality
    assert each == {"base": 0.8, "org/tuned": 0.9}
    assert parse(f"{SERVICE}quality = 0.91", FILE).service[0].quality == 0.91


def test_budget_is_exact_and_covers_the_host_by_default():
    day = '[[budget]]\nname = "a"\namount = 12.34567890\nperiod = "day"\n'
    (budget,) = parse(day, FILE).budget
    assert budget.amount == Decimal("12.34567890")
    assert (budget.scope, budget.currency, budget.timezone) == ("host", "USD", "UTC")
    for key, scope in (("device", "s"), ("service", "service s")):
        (budget,) = parse(f'{day}{key} = "s"\n{SERVICE}', FILE).budget
        assert budget.scope == scope
    assert parse(day + 'currency = "EUR"\n', FILE).budget[0].currency == "EUR"
