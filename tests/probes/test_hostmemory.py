"""Available memory of the host and of the cgroups of a worker."""

import pytest
from costprobe_probes.host_memory import HostMemory

MIB = 1 << 20


@pytest.fixture
def root(tmp_path):
    """A host with 16000 MiB, of which 8000 MiB are available; a process with 300 MiB resident."""
    write(
        tmp_path,
        {
            "proc/meminfo": f"MemTotal: {16000 * 1024} kB\nMemAvailable: {8000 * 1024} kB\n"
            "HugePages_Total: 0\n",
            "proc/self/status": f"Name:\tpython: 7 kB\nVmHWM:\t{400 * 1024} kB\n"
            f"VmRSS:\t{300 * 1024} kB\nThreads:\t3\n",
            "proc/self/clear_refs": "",
            "proc/self/cgroup": "0::/a/b\n",
        },
    )
    return tmp_path


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def group(folder, *, limit, used_mib, cache_mib, version=2):
    names = {
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        2: ("memory.max", "memory.current", "inactive_file"),
    }[version]
    return {
        f"{folder}/{names[0]}": f"{limit}\n",
        f"{folder}/{names[1]}": f"{used_mib * MIB}\n",
        f"{folder}/memory.stat": f"anon 1\n{names[2]} {cache_mib * MIB}\n",
    }


def free_mib(root):
    total, available = HostMemory(str(root)).total_and_available_bytes()
    return total / MIB, available / MIB


def test_available_memory_is_that_of_the_host_or_of_a_tighter_cgroup(root):
    memory, top = HostMemory(str(root)), "sys/fs/cgroup"
    assert free_mib(root) == (16000, 8000)
    assert (memory.resident_bytes(), memory.peak_bytes()) == (300 * MIB, 400 * MIB)
    write(root, group(f"{top}/a", limit=1000 * MIB, used_mib=900, cache_mib=100))
    write(root, group(f"{top}/a/b", limit="max", used_mib=10, cache_mib=0))
    assert free_mib(root) == (1000, 200)
    # Above its limit nothing is available.
    write(root, group(f"{top}/a", limit=100 * MIB, used_mib=130, cache_mib=0))
    assert free_mib(root) == (100, 0)
    # Of version 1.
    write(root, {"proc/self/cgroup": "9:name=systemd:/\n4:cpu,memory:/c\n"})
    folder = f"{top}/memory"
    write(root, group(folder, limit=2**63 - 4096, used_mib=9, cache_mib=0, version=1))
    write(root, group(f"{folder}/c", limit=500 * MIB, used_mib=400, cache_mib=50, version=1))
    assert free_mib(root) == (500, 150)
    (root / "proc/self/cgroup").unlink()
    assert free_mib(root) == (16000, 8000)


def test_peak_reset_is_requested_and_may_be_denied(root):
    HostMemory(str(root)).reset_peak()
    assert (root / "proc/self/clear_refs").read_text() == "5"
    (root / "proc/self/clear_refs").unlink()
    (root / "proc/self/clear_refs").mkdir()
    HostMemory(str(root)).reset_peak()
