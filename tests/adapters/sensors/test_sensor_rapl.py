import os
import shutil
import tempfile
from pathlib import Path

import pytest
from costprobe.adapters.sensors.child.cpu import (
    RaplCounter,
    Zone,
    find_zones,
    is_dram,
    is_package,
    unwrap_uj,
)
from costprobe.adapters.sensors.messages import SensorFault
from hypothesis import given
from hypothesis import strategies as st

RANGE_UJ = 262_143_328_850


def make_zone(root, directory, name, energy_uj, range_uj=RANGE_UJ):
    folder = root / "sys/class/powercap" / directory
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
    return folder / "energy_uj"


@pytest.fixture
def two_packages(tmp_path):
    """A server with two packages, their parts, DRAM, psys and the second view of package 0."""
    counters = [
        make_zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000),
        make_zone(tmp_path, "intel-rapl:1", "package-1", 5_000_000),
    ]
    make_zone(tmp_path, "intel-rapl:0:0", "core", 7)
    make_zone(tmp_path, "intel-rapl:0:1", "dram", 7)
    make_zone(tmp_path, "intel-rapl:2", "psys", 7)
    make_zone(tmp_path, "intel-rapl-mmio:0", "package-0", 7)
    (tmp_path / "sys/class/powercap/intel-rapl").mkdir()
    return tmp_path, counters


@pytest.mark.parametrize(
    ("directory", "name", "package"),
    [
        ("intel-rapl:0", "package-0", True),
        ("intel-rapl:1", "package-1-die-0", True),
        ("intel-rapl:0:0", "core", False),
        ("intel-rapl:0:1", "uncore", False),
        ("intel-rapl:0:2", "dram", False),
        ("intel-rapl:3", "psys", False),
        ("intel-rapl-mmio:0", "package-0", False),
    ],
)
def test_only_packages_of_the_msr_interface_are_summed(directory, name, package):
    assert is_package(directory, name) is package


def test_packages_of_a_host_are_found(two_packages):
    root, counters = two_packages
    zones = find_zones(root)
    assert [zone.path for zone in zones] == counters
    assert zones[0].max_energy_range_uj == RANGE_UJ


def test_rapl_counter_sums_the_packages(two_packages):
    root, counters = two_packages
    counter = RaplCounter(find_zones(root))
    assert counter.read_j() == 0
    counters[0].write_text("3000000\n")
    counters[1].write_text("5500000\n")
    assert counter.read_j() == 2.5


def test_dram_zones_are_summed_separately(two_packages):
    root, _ = two_packages
    (zone,) = find_zones(root, is_dram)
    assert zone.path == root / "sys/class/powercap/intel-rapl:0:1/energy_uj"
    counter = RaplCounter([zone])
    assert counter.read_j() == 0
    zone.path.write_text("2000007\n")
    assert counter.read_j() == 2.0


def test_missing_rapl_differs_from_denied_rapl(tmp_path):
    absent = find_zones(tmp_path)
    assert isinstance(absent, SensorFault)
    assert absent.code == "ENOENT"
    assert "virtual machine" in absent.detail


@pytest.fixture
def ordinary_user():
    """A user without root's right to read every file, where the tests run as root."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield
    os.seteuid(user)


def test_unreadable_counter_reports_the_permission_and_its_fix(request):
    # pytest's own folders are closed to other users.
    root = Path(tempfile.mkdtemp())
    request.addfinalizer(lambda: shutil.rmtree(root))
    root.chmod(0o755)
    counter = make_zone(root, "intel-rapl:0", "package-0", 1)
    counter.chmod(0)
    request.getfixturevalue("ordinary_user")
    missing = find_zones(root)
    assert isinstance(missing, SensorFault)
    assert (missing.call, missing.code) == (str(counter), "EACCES")
    assert "CAP_DAC_READ_SEARCH" in missing.detail


def test_unreadable_rapl_counter_is_reported_with_its_file(tmp_path):
    counter = make_zone(tmp_path, "intel-rapl:0", "package-0", 1)
    counter.unlink()
    counter.mkdir()
    missing = find_zones(tmp_path)
    assert isinstance(missing, SensorFault)
    assert missing.call == str(counter)
    assert missing.code == "EISDIR"


def test_counter_file_without_a_number_is_reported(tmp_path):
    make_zone(tmp_path, "intel-rapl:0", "package-0", "soon")
    assert find_zones(tmp_path).code == "EINVAL"


def test_wrap_around_by_hand():
    assert unwrap_uj(100, 250, 1000) == 150
    assert unwrap_uj(900, 50, 1000) == 150
    assert unwrap_uj(7, 7, 1000) == 0


@given(
    range_uj=st.integers(10**9, 2**40),
    start_uj=st.integers(0, 2**40),
    steps_uj=st.lists(st.integers(0, 400_000_000), max_size=50),
)
def test_unwrapped_energy_equals_the_energy_used(range_uj, start_uj, steps_uj):
    zone = Zone(None, range_uj)
    counter = RaplCounter([zone])
    used_uj, total_j = start_uj, counter.add([start_uj % range_uj])
    for step_uj in steps_uj:
        used_uj += step_uj
        total_j = counter.add([used_uj % range_uj])
    assert total_j == pytest.approx(sum(steps_uj) / 1e6, abs=1e-6)
