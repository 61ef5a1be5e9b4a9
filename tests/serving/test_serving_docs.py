"""The guide's configuration is one that is taken, and names the counters that are read."""

import re
import tomllib
from pathlib import Path

from agent.config_file import parse
from agent.config_service import ServiceConfig
from agent.serving.engines import ENGINES

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "serving.md").read_text()


def test_the_guides_configuration_is_taken():
    blocks = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
    services = [
        ServiceConfig.model_validate(table)
        for block in blocks
        for table in tomllib.loads(block).get("service", ())
    ]
    assert [service.engine for service in services] == ["vllm", "vllm", "generic"]


def test_the_guides_rule_is_taken():
    (rule,) = re.findall(r"```toml\n(\[\[rule\]\].*?)```", GUIDE, re.DOTALL)
    assert parse(rule, Path("infercost.toml")).rule[0].match["basis"] == "serving"


def test_the_guide_names_every_counter_of_requests_and_every_engine():
    for engine in ENGINES.values():
        for measure in ("requests", "tokens_in", "compute_s", "prefill_s"):
            for counter in engine.counters.get(measure, ())[:1]:
                assert f"`{counter.name}`" in GUIDE, (engine.name, counter.name)
