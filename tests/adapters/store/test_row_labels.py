"""Labels of probes and services are tags of their rows."""

from pathlib import Path

import pytest
from costprobe.adapters.store.ledger import RowLabels, StoreLedger
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.write import Store
from costprobe.configuration import parse
from costprobe.core.config.load import ConfigError
from costprobe.core.records import Point
from costprobe.core.schema import SCHEMA
from fakes.clock import FakeClock

CONFIG = """
[host.labels]
team = "platform"
rack = "a1"
[[probe]]
name = "ranker"
labels = { team = "search", product = "ranking" }
[[probe]]
name = "plain"
[[service]]
name = "chat"
url = "http://127.0.0.1:8000"
engine = "vllm"
devices = ["gpu0"]
labels = { team = "assistant" }
"""


def test_rows_have_the_labels_of_their_probe_or_service(tmp_path):
    config = parse(CONFIG, Path("costprobe.toml"))
    store = Store.open(tmp_path / "costprobe.db", FakeClock())
    ledger = StoreLedger(store)
    ledger.label_with(RowLabels(config.probe, config.service))
    host = {"rack": "a1", "team": "platform"}
    observed = []
    ledger.observe(lambda points: observed.extend(points) or [_row("event", host, probe="ranker")])
    ledger.append(
        [
            _row("cost", host, probe="ranker"),
            _row("probe", host, probe="plain"),
            _row("allocation", host, service="chat"),
            _row("device", host),
        ]
    )
    store.close()
    expected = {
        "cost": {"rack": "a1", "team": "search", "product": "ranking", "probe": "ranker"},
        "event": {"rack": "a1", "team": "search", "product": "ranking", "probe": "ranker"},
        "probe": {**host, "probe": "plain"},
        "allocation": {"rack": "a1", "team": "assistant", "service": "chat"},
        "device": host,
    }
    reader = StoreReader.open(tmp_path / "costprobe.db")
    for measurement, tags in expected.items():
        (row,) = reader.points(measurement, 0, 2**62)
        assert dict(row.tags) == tags, measurement
    reader.close()
    # Rules see them, too.
    assert {point.tags["team"] for point in observed} == {"search", "platform", "assistant"}


def test_labels_named_like_a_tag_or_a_field_are_refused():
    """InfluxDB 3 refuses rows in which a tag has the name of a field."""
    for name in ("device", "host", "time", "title", "severity", "power_w"):
        with pytest.raises(ConfigError, match=f"{name}.*is a tag or a field of costprobe"):
            parse(CONFIG.replace("product =", f"{name} ="), Path("c.toml"))
    for measurement, columns in SCHEMA.items():
        assert not set(columns.tags) & columns.fields.keys(), measurement


def _row(measurement, tags, **own):
    return Point(measurement, {**tags, **own}, {"cost": 1.0}, 1_780_000_000 * 10**9)
