"""The guide to serving: its configuration is valid, and it names the counters that are read."""

from pathlib import Path

from costprobe.adapters.engines.tables import ENGINES

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "serving.md").read_text()


def test_guide_names_every_engine_and_request_counter():
    for engine in ENGINES.values():
        for measure in ("requests", "tokens_in", "compute_s", "prefill_s"):
            for counter in engine.counters.get(measure, ())[:1]:
                assert f"`{counter.name}`" in GUIDE, (engine.name, counter.name)
        assert f"| `{engine.name}` |" in GUIDE
        assert not engine.option or f"`{engine.option}`" in GUIDE, engine.option
