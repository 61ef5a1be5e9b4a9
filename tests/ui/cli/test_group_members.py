"""What commands about one host answer about parts of a group: no unit cost, and where it is."""

from contextlib import closing
from dataclasses import replace

import pytest
from costprobe.adapters.store.ledger import StoreLedger
from costprobe.adapters.store.write import Store
from costprobe.core.records import NS_PER_S
from costprobe.core.schema import SERVING_RATIOS
from fakes.cli import NOW_S, host, session
from fakes.clock import FakeClock
from fakes.fleet_groups import START_S, WINDOW_S, member

COUNTS = {"requests": 120.0, "tokens_in": 1.2e6, "tokens_out": 1.2e5}


def rows():
    """Two days of services, of which one was complete until yesterday."""
    chat = {"service": "chat", "counts": COUNTS, "split": 0.5}
    yield from member("h", "", range(-48, -24), group="", **chat)
    yield from member("h", "decode", range(-24, 0), **chat, cost=5.0)
    yield from member("h", "worker", range(-48, 0), service="rest")


@pytest.mark.usefixtures("stopped")
def test_parts_have_no_unit_costs_on_their_host(costprobe):
    """Its price while it was complete: what it costs as a part is not that of these requests."""
    costprobe.write(host("group_members"))
    shift_ns = (NOW_S // WINDOW_S * WINDOW_S - START_S) * NS_PER_S
    points = []
    for row in rows():
        fields = dict(row.fields)
        if row.measurement == "cost" and "requests" in fields:
            found = {name: ratio.of(fields) for name, ratio in SERVING_RATIOS.items()}
            fields |= {name: value for name, value in found.items() if value}
        points.append(replace(row, fields=fields, time_ns=row.time_ns + shift_ns))
    with closing(Store.open(costprobe.store, FakeClock(NOW_S * NS_PER_S))) as store:
        StoreLedger(store).append(sorted(points, key=lambda row: row.time_ns))
    session("group_members", costprobe.config)
