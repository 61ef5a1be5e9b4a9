"""The configuration: valid files are accepted, others rejected with all errors."""

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
import tomli_w
from costprobe.configuration import load, parse
from costprobe.core.config.load import ConfigError, as_toml_tables
from costprobe.core.config.location import MAX_FILE_BYTES
from costprobe.core.units import format_duration, parse_duration_s, parse_size_bytes
from fakes.cases import check_all
from fakes.full_config import FULL
from hypothesis import given
from hypothesis import strategies as st

FILE = Path("costprobe.toml")
V1 = '[[sink]]\napi = "v1"\nurl = "http://h:1"\ndatabase = "d"\n'
V2 = '[[sink]]\napi = "v2"\nurl = "http://h:1"\nbucket = "b"\n'
CHAT = 'kind = "openai"\nurl = "http://h"\nmodel = "m"\n'


def problems(text):
    with pytest.raises(ConfigError) as caught:
        parse(text, FILE)
    return caught.value.problems


def test_full_file_is_parsed():
    config = parse(FULL, FILE)
    assert config.probe[0].every_s == 90
    assert config.probe[0].latency_bound_s == pytest.approx(0.05)
    assert config.probe[0].memory_cap_bytes == 4 * 2**30
    assert config.probing.duty == pytest.approx(0.02)
    assert config.price[1].valid_from == date(2026, 6, 1)


def test_amounts_are_exact_decimals():
    config = parse(FULL, FILE)
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


def test_all_errors_are_reported_at_once_with_key_and_fix():
    found = problems(
        """
        [telemetri]
        [host.labels]
        device = "x"
        [[probe]]
        name = "a"
        evry = "5m"
        every = "5 minuts"
        batch = "atuo"
        [[probe]]
        name = "a"
        [[price]]
        plan = "owned"
        purchase_price = 1
        [[price]]
        plan = "rent"
        currency = "EUR"
        [[sink]]
        api = "v2"
        url = "http://db:8086"
        """
    )
    by_key = dict(problem.split(": ", 1) for problem in found)
    assert 'did you mean "telemetry"' in by_key["telemetri"]
    assert 'did you mean "every"' in by_key["probe[0].evry"]
    assert '"5m"' in by_key["probe[0].every"]
    assert "'auto'" in by_key["probe[0].batch"]
    assert "already used" in by_key["probe[1].name"]
    assert "add it" in by_key["price[0].lifetime"]
    assert "on_demand, reserved, spot, list, owned" in by_key["price[1].plan"]
    assert "missing" in by_key["sink[0].bucket"]
    assert "one currency" in by_key["price"]
    assert "another name" in by_key["host.labels.device"]


def test_list_with_an_invalid_entry_is_not_called_empty():
    window = 'name = "a"\ndays = ["Saturday"]\nstart = "02:00"\nend = "04:00"\n'
    (problem,) = problems(f"[[maintenance]]\n{window}")
    assert problem.startswith("maintenance[0].days[0]: write one of 'mon'")


def test_invalid_values_are_reported():
    def check(text, words):
        assert any(words in problem for problem in problems(text)), problems(text)

    check_all(
        check,
        [
            ('[[probe]]\nname = "x"\nkind = "module"\n', "go together"),
            ('[[probe]]\nname = "x"\nwindow = "1s"\n', "5"),
            ('[[probe]]\nname = "x"\ndeadline = "3s"\n', "longer than window"),
            ('[[probe]]\nname = "-x"\n', "letters"),
            ('[[price]]\nplan = "on_demand"\nper_hour = -1\n', "at least 0"),
            ('[[price]]\nplan = "on_demand"\nper_hour = 1\ncurrency = "usd"\n', "ISO 4217"),
            ("[electricity]\ntariff_per_kwh = 0.1\npue = 0.9\n", "at least 1"),
            (V1 + 'bucket = "b"\n', "unknown key"),
            (V2.replace("h:1", "u:p@h:1"), "url"),
            (V2.replace("http", "ftp"), "write an http"),
            (V2.replace("h:1", "h:1\\n"), "write an http"),
            (V2 + 'token = "x"\n', "never the token itself"),
            (
                V2 + 'token_file = "/x"\n',
                'token_file: is no longer an option: write token = "file:/PATH"; remove',
            ),
            (V1 + 'password = "file:/x"\n', "add user"),
            ("[host\n", "not valid TOML"),
            (
                V2 + "batch_points = 10\n",
                "no longer an option: a request holds at most 5,000 points",
            ),
            ('[telemetry]\naggregate = "1m"\n', "no longer an option: a row of device covers ten"),
            # A key that is the name of a kind or of a type keeps its name.
            ('[[rule]]\nkind = "drift"\nbudget = 3\n', "rule[0].budget: unknown key"),
            ('[[rule]]\nkind = "drift"\ndrift = 3\n', "rule[0].drift: unknown key"),
            ('[[probe]]\nkind = "module"\nmodule = 3\n', "probe[0].module: must be text"),
            ('[[service]]\nname = "a"\ndate = 3\n', "service[0].date: unknown key"),
            ("[host.labels]\nint = 3\n", "host.labels.int: must be text"),
            ('[[rule]]\nkind = "drift"\nat_least = 10\n', 'for 10 percent write "10%"'),
            ("[probing]\nduty = 1.5\n", 'write "1.5%"'),
            ('[[price]]\nplan = "reserved"\ndiscount = 40\n', 'write "40%"'),
            ('[probing]\nduty = "1%x"\n', "a share is"),
            ('host = "x"\n', "host: must be a table: write [host]"),
            ("[[host]]\n", "host: must be a table: write [host]"),
            ("probe = 3\n", "probe: must be a table: write [[probe]]"),
            ('[probe]\nname = "a"\n', "probe: must be a table: write [[probe]]"),
            ('[[notifier]]\nname = "a"\nkind = "slack"\n', 'url = "file:/etc/costprobe/slack.url"'),
            ('[[notifier]]\nkind = "email"\nurl = "mailtos://u:p@h"\n', "mailtos://USER"),
            (
                '[[notifier]]\nkind = "webhook"\nurl = "https://hooks.slack.com/services/T/B/x"\n',
                'write kind = "slack" and url = "file:/etc/costprobe/slack.url"',
            ),
            ("service = [3]\n", "service[0]: must be a table: write [[service]]"),
            ("[electricity.hours]\n", "electricity.hours: must be a table: write [[electricity"),
            ("[[service]]\n[[service.tenants]]\n", "write [service.tenants]"),
        ],
    )


def test_two_plans_of_a_device_on_one_day_are_rejected():
    plan = '[[price]]\nplan = "on_demand"\nper_hour = 1\nvalid_from = 2026-01-01\n'
    assert any("same day" in problem for problem in problems(plan + plan))


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


def test_all_errors_of_rules_and_notifiers_are_reported_at_once():
    found = problems(
        """
        [[rule]]
        name = "a"
        kind = "treshold"
        [[rule]]
        name = "b"
        kind = "threshold"
        measurement = "device"
        field = "temp"
        abov = 3
        notify = ["pager"]
        [[rule]]
        name = "b"
        kind = "slo"
        within_ms = 5
        for = "5"
        field = "stop_reason"
        [[notifier]]
        name = "n"
        kind = "mail"
        [[maintenance]]
        name = "w"
        start = "25:00"
        end = "03:00"
        timezone = "Mars/Base"
        """
    )
    for part in (
        "rule[0].kind: write one of drift, anomaly, threshold",
        'rule[1].abov: unknown key; did you mean "above"?',
        "rule[1].field: device has no field 'temp'; did you mean \"temp_c\"?",
        "rule[1].notify: unknown notifier 'pager'",
        "rule[2].name: 'b' is already used",
        "rule[2].for: '5' is not a duration",
        "rule[2].field: stop_reason is text",
        "notifier[0].kind: write one of alertmanager, webhook, apprise",
        'maintenance[0].start: a time of day is "HH:MM"',
        "maintenance[0].timezone: no such time zone",
    ):
        assert any(part in problem for problem in found), part


def test_invalid_rules_are_rejected():
    def check(table, words):
        assert any(words in problem for problem in problems(f'[[rule]]\nname = "r"\n{table}\n'))

    check_all(
        check,
        [
            ('kind = "threshold"\nmeasurement = "device"\nfield = "temp_c"', "above or below"),
            (
                'kind = "threshold"\nmeasurement = "device"\nfield = "temp_c"\nabove = 80\nclear = 85',
                "clear must not be higher",
            ),
            ('kind = "absence"\nmeasurement = "devices"', "rule[0].measurement: write one of"),
        ],
    )


def test_alertmanager_accepts_one_credential():
    table = '[[notifier]]\nname = "n"\nkind = "alertmanager"\nurl = "http://127.0.0.1:9093"\n'
    assert any("go together" in problem for problem in problems(table + 'user = "u"\n'))
    parse(table + 'user = "u"\npassword = "file:/p"\n', FILE)


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


def test_invalid_probes_are_rejected():
    def check(table, words):
        found = problems(f'[[probe]]\nname = "p"\n{table}\n')
        assert any(words in problem for problem in found), found
        assert not any("secret" in problem for problem in found)

    check_all(
        check,
        [
            ('kind = "resnet50"', "unknown probe kind 'resnet50'"),
            ('kind = "timm"', 'such as "timm:vit_base_patch16_224"'),
            ('kind = "timm:"', "unknown probe kind"),
            ('kind = "cnn"\ninputs = [{ shape = [3] }]', "remove inputs"),
            ('kind = "decoder:1B/decode"\ninputs = [{ shape = [3] }]', "remove inputs"),
            ('kind = "decoder:9B/decode"', "no decoder '9B/decode'; write one of small/prefill"),
            ('kind = "decoder"', 'add the model to load, such as "decoder:small/decode"'),
            ('kind = "cnn"\ncontext_tokens = 8', "remove context_tokens"),
            ('kind = "decoder:1B/decode"\ncontext_tokens = 1', "context_tokens"),
            ('kind = "pt2:/a"\ndtype = "bf16"', "remove dtype"),
            ('kind = "torchscript:/a"\ncompile = true', "remove compile"),
            ('kind = "transformers:/a"\nweights = "/w"', "remove weights"),
            ('defer_at_most = "2m"', "is no longer an option: a run waits for 30 s"),
            (CHAT + 'load = { min_gain = "5%" }', "no longer an option"),
            ('when_busy = "wait"', "write one of 'run', 'skip'"),
            ('kind = "openai"\nmodel = "m"', "probe[0].url: is missing"),
            ('kind = "openai"\nurl = "http://u:secret@h"\nmodel = "m"', "probe[0].url"),
            ('kind = "openai"\nurl = "http://h"\nmodle = "m"', 'did you mean "model"?'),
            (CHAT + "batch = 3", "unknown key"),
            (
                CHAT + 'python = "/p"',
                "is no longer an option: a probe of a server runs under costprobe's own interpreter",
            ),
            (
                (
                    'kind = "kserve"\nurl = "http://h"\nmodel = "m"\n'
                    'inputs = [{ name = "x", datatype = "FP32", shape = [2], data = [1] }]'
                ),
                "data has 1 values where shape has 2",
            ),
        ],
    )
