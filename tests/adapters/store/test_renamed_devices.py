"""Rows follow their devices to other names; sinks receive them under the name of their time."""

from contextlib import closing

from costprobe.adapters.store.ledger import StoreLedger
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.retention import KeepSince
from store_samples import T0_NS, S, point

EXCHANGED = {"gpu0": "GPU-a", "gpu1": "gpu0", "gpu0+gpu1": "GPU-a+gpu0"}


def watts(path, device):
    reader = StoreReader.open(path)
    rows = reader.points("device", 0, T0_NS * 2, {"device": device})
    found = [row.fields["power_w"] for row in rows]
    reader.close()
    return found


def sent(store):
    """The lines that a new sink receives, as its devices' names and values."""
    outbox = store.outbox_of("influx")
    lines = [row.line for row in outbox.rows(outbox.live_batch(99))]
    return [(line.split(",")[1], float(line.split("power_w=")[1].split()[0])) for line in lines]


def rename(names):
    return lambda device: names.get(device, device)


def test_history_follows_its_device_and_what_was_not_sent_keeps_the_name_of_its_time(store, path):
    ledger = StoreLedger(store)
    old = [point(0, device, power_w=watt) for device, watt in (("gpu0", 10.0), ("gpu1", 11.0))]
    ledger.append([*old, point(0, "gpu0+gpu1", power_w=21.0)])
    store.retain(KeepSince(T0_NS + 3600 * S, 0, 0, 0))
    store.register_sink("influx")
    ledger.append([point(7200, "gpu0", power_w=12.0), point(7200, "gpu1", power_w=13.0)])
    ledger.rename_devices(rename(EXCHANGED), {"boards": [1]})
    ledger.append([point(7300, "gpu0", power_w=14.0)])
    names = ("gpu0", "gpu1", "GPU-a", "GPU-a+gpu0")
    assert [watts(path, name) for name in names] == [[11, 13, 14], [], [10, 12], [21]]
    unsent = [("device=gpu0", 12), ("device=gpu1", 13), ("device=gpu0", 14)]
    assert sent(store) == unsent
    assert ledger.state("boards") == [1]
    # The board is back: the names are exchanged again.
    ledger.rename_devices(rename({new: old for old, new in EXCHANGED.items()}), {"boards": []})
    ledger.append([point(7400, "gpu0", power_w=15.0)])
    assert [watts(path, name) for name in names] == [[10, 12, 15], [11, 13, 14], [], []]
    assert sent(store) == [*unsent, ("device=gpu0", 15)]


def test_rows_of_an_unknown_device_with_the_new_name_are_kept(store, path):
    ledger = StoreLedger(store)
    ledger.append([point(0, "gpu1", power_w=11.0), point(1, "gpu0", power_w=10.0)])
    ledger.rename_devices(rename({"gpu1": "gpu0"}), {"boards": []})
    assert (watts(path, "gpu0"), watts(path, "gpu1")) == ([11, 10], [])


def test_rows_of_the_same_time_and_hours_of_both_devices_are_kept(store, path):
    devices = {"gpu0": 10.0, "gpu1": 11.0}
    for second in (0, 10, 3600):
        store.append([point(second, name, energy_j=j) for name, j in devices.items()])
    store.retain(KeepSince(T0_NS + 3600 * S, 0, 0, 0))
    StoreLedger(store).rename_devices(rename({"gpu1": "gpu0"}), {"boards": []})
    with closing(StoreReader.open(path)) as reader:
        hour, *rows = reader.points("device", 0, T0_NS * 2, {"device": "gpu0"})
    assert (hour.rows, hour.fields, hour.newest_ns) == (4, {"energy_j": 42.0}, T0_NS + 10 * S)
    assert {(row.time_ns - T0_NS, row.fields["energy_j"]) for row in rows} == {
        (3600 * S, 11.0),
        (3600 * S + 1, 10.0),
    }
