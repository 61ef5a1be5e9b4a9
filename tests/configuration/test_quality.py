"""The operator's quality figure of a model in the configuration."""

from pathlib import Path

import pytest
from costprobe.configuration import parse

PROBE = '[[probe]]\nname = "p"\n'
CHAT = f'{PROBE}kind = "openai"\nmodel = "m"\nurl = "http://127.0.0.1:9"\n'
SERVICE = (
    '[[service]]\nname = "s"\nengine = "vllm"\nurl = "http://127.0.0.1:9"\ndevices = ["gpu0"]\n'
)


def parsed(text):
    return parse(text, Path("costprobe.toml"))


@pytest.mark.parametrize("table", [PROBE, CHAT])
def test_every_probe_kind_accepts_a_quality(table):
    assert parsed(f"{table}quality = 0.91").probe[0].quality == 0.91
    assert parsed(f"{table}quality = 34").probe[0].quality == 34
    assert parsed(table).probe[0].quality is None


def test_service_accepts_one_quality_or_one_per_model():
    assert parsed(f"{SERVICE}quality = 0.91").service[0].quality == 0.91
    each = parsed(f"{SERVICE}quality = {{ base = 0.8, 'org/tuned' = 0.9 }}").service[0].quality
    assert each == {"base": 0.8, "org/tuned": 0.9}
