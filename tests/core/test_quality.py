"""The operator's own figure of how good a model is, in the configuration."""

from pathlib import Path

import pytest

from agent.config_file import ConfigError, parse

PROBE = '[[probe]]\nname = "p"\n'
CHAT = f'{PROBE}kind = "openai"\nmodel = "m"\nurl = "http://127.0.0.1:9"\n'
SERVICE = (
    '[[service]]\nname = "s"\nengine = "vllm"\nurl = "http://127.0.0.1:9"\ndevices = ["gpu0"]\n'
)


def parsed(text):
    return parse(text, Path("infercost.toml"))


@pytest.mark.parametrize("table", [PROBE, CHAT])
def test_every_kind_of_probe_takes_one(table):
    assert parsed(f"{table}quality = 0.91").probe[0].quality == 0.91
    assert parsed(f"{table}quality = 34").probe[0].quality == 34
    assert parsed(table).probe[0].quality is None


def test_a_service_takes_one_or_one_for_each_of_its_models():
    assert parsed(f"{SERVICE}quality = 0.91").service[0].quality == 0.91
    each = parsed(f"{SERVICE}quality = {{ base = 0.8, 'org/tuned' = 0.9 }}").service[0].quality
    assert each == {"base": 0.8, "org/tuned": 0.9}


@pytest.mark.parametrize("table", [PROBE, SERVICE])
@pytest.mark.parametrize("value", ["-0.1", "nan", "inf", '"good"', "[0.9]"])
def test_what_is_no_quality_is_named(table, value):
    with pytest.raises(ConfigError, match="quality"):
        parsed(f"{table}quality = {value}")
