"""The guide to serving: its configuration is valid, and it names the counters that are read."""

import re
import tomllib
from pathlib import Path

from costprobe.adapters.engines.tables import ENGINES
from costprobe.configuration import parse
from costprobe.serving.settings import ServiceConfig

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "serving.md").read_text()


def test_configuration_of_the_guide_is_valid():
    blocks = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
    services = [
        ServiceConfig.model_validate(table)
        for block in blocks
        for table in tomllib.loads(block).get("service", ())
    ]
    assert [service.engine for service in services] == ["vllm", "vllm", "generic", "vllm"]


def test_rule_of_the_guide_is_valid():
    (rule,) = re.findall(r"```toml\n(\[\[rule\]\].*?)```", GUIDE, re.DOTALL)
    assert parse(rule, Path("costprobe.toml")).rule[0].match["basis"] == "serving"


def test_guide_names_every_engine_and_request_counter():
    for engine in ENGINES.values():
        for measure in ("requests", "tokens_in", "compute_s", "prefill_s"):
            for counter in engine.counters.get(measure, ())[:1]:
                assert f"`{counter.name}`" in GUIDE, (engine.name, counter.name)
        assert f"| `{engine.name}` |" in GUIDE
        assert not engine.option or f"`{engine.option}`" in GUIDE, engine.option
