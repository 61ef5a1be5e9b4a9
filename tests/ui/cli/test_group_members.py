"""What commands about one host answer about parts of a group: no unit cost, and where it is."""

import time
from dataclasses import replace

from costprobe.adapters.store.ledger import StoreLedger
from costprobe.adapters.store.write import Store
from costprobe.core.clock import SystemClock
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import SERVING_RATIOS
from fakes.command import called
from fakes.documents import checked
from fakes.fleet_groups import START_S, WINDOW_S, member

CONFIG = """
[host]
name = "h"
[store]
path = "{store}"
[telemetry]
cpu = true
gpus = false
[[service]]
name = "chat"
engine = "vllm"
url = "http://127.0.0.1:9"
devices = ["cpu"]
group = "big"
role = "decode"
[[service]]
name = "rest"
engine = "vllm"
devices = ["cpu"]
group = "big"
role = "worker"
"""
COUNTS = {"requests": 120.0, "tokens_in": 1.2e6, "tokens_out": 1.2e5}
ELSEWHERE = "of the group big: costprobe compare --fleet --by group has its unit costs"


def rows():
    """Two days of services, of which one was complete until yesterday."""
    chat = {"service": "chat", "counts": COUNTS, "split": 0.5}
    yield from member("h", "", range(-48, -24), group="", **chat)
    yield from member("h", "decode", range(-24, 0), **chat, cost=5.0)
    yield from member("h", "worker", range(-48, 0), service="rest")


def stored(tmp_path):
    shift_ns = (time.time_ns() // NS_PER_S // WINDOW_S * WINDOW_S - START_S) * NS_PER_S
    path = tmp_path / "costprobe.db"
    points = []
    for row in rows():
        fields = dict(row.fields)
        if row.measurement == "cost" and "requests" in fields:
            fields |= {
                name: of for name, ratio in SERVING_RATIOS.items() if (of := ratio.of(fields))
            }
        points.append(replace(row, fields=fields, time_ns=row.time_ns + shift_ns))
    store = Store.open(path, SystemClock())
    StoreLedger(store).append(sorted(points, key=lambda row: row.time_ns))
    store.close()
    config = tmp_path / "costprobe.toml"
    config.write_text(CONFIG.format(store=path))
    return config


def test_parts_have_no_unit_costs_on_their_host(tmp_path):
    config = stored(tmp_path)
    # Its price while it was complete: what it costs as a part is not that of these requests.
    (group,) = checked("compare", called(config, "compare", "--json").stdout)["groups"]
    (chat,) = group["models"]
    assert (chat["name"], chat["cost_per_inference"]["value"]) == ("chat", 1 / 120)
    explained = called(config, "explain", "--since", "1d").stdout
    for service, role in (("chat", "decode"), ("rest", "worker")):
        words = f"a part ({role}) {ELSEWHERE}"
        assert f"{service}: {words}" in " ".join(explained.split())
        refused = called(config, "calibrate", service, code=2).stderr
        assert f"{service} cannot be calibrated, as {words}" in " ".join(refused.split())
    (spend,) = checked("spend", called(config, "spend", "--since", "12h", "--json").stdout)
    costs = {part["name"]: part["cost"] for part in spend["parts"]}
    assert costs["chat"] > 4 * costs["rest"] > 0
    for field in ("cost_per_request", "cost_per_million_tokens_out"):
        words = ("trend", "--service", "rest", "--field", field)
        why = " ".join(called(config, *words, code=1).stderr.split())
        assert f"no {field}: rest is a part (worker) {ELSEWHERE}" in why
    exported = ("price", "export", "--for", "litellm", "--since", "12h")
    why = " ".join(called(config, *exported, code=2).stderr.split())
    assert f"chat is a part (decode) {ELSEWHERE}" in why
