"""GPUs on one module are found by their equal energies."""

from costprobe.core.schema import make_point
from costprobe.devices.use import shared_modules

S = 10**9


def rows(device, watts, *, scope="module", count=180, late_j=0.0):
    """Half an hour of rows; late_j is what the first row lacks and the last one has more."""
    found = []
    for i in range(count):
        energy_j = watts(i) * 10 + (late_j if i == count - 1 else 0) - (late_j if i == 0 else 0)
        fields = {"energy_j": float(energy_j), "energy_scope": None if scope == "device" else scope}
        found.append(make_point("device", {"device": device}, fields, i * 10 * S))
    return found


def busy(i):
    return 900 + i % 7 * 50


def test_equal_energies_of_a_module_are_found_in_spite_of_lag():
    one, other = rows("gpu0", busy), rows("gpu1", busy, late_j=90.0)
    apart = rows("gpu2", lambda i: busy(i) + 1)
    assert shared_modules([*other, *apart, *one]) == [("gpu0", "gpu1")]


def test_devices_without_a_module_and_short_times_are_not_compared():
    assert shared_modules(rows("gpu0", busy, scope="device") + rows("gpu1", busy)) == []
    short = [rows(device, busy, count=30) for device in ("gpu0", "gpu1")]
    assert shared_modules([*short[0], *short[1]]) == []
