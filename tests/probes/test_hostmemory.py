"""Available memory of the host and of the cgroups of a worker."""

import json

import pytest
from costprobe_probes.host_memory import HostMemory
from record.record_files import check_outcomes

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
        },
    )
    return tmp_path


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_available_memory_is_that_of_the_host_or_of_a_tighter_cgroup(root):
    """Total and available MiB with these files of cgroups; see `record_files`."""
    memory = HostMemory(str(root))
    assert (memory.resident_bytes(), memory.peak_bytes()) == (300 * MIB, 400 * MIB)

    def free_mib(text):
        (root / "proc/self/cgroup").unlink(missing_ok=True)
        _, files = json.loads(text)
        write(root, files)
        return [count / MIB for count in HostMemory(str(root)).total_and_available_bytes()]

    check_outcomes("cgroup_memory.json", free_mib)


def test_peak_reset_is_requested_and_may_be_denied(root):
    HostMemory(str(root)).reset_peak()
    assert (root / "proc/self/clear_refs").read_text() == "5"
    (root / "proc/self/clear_refs").unlink()
    (root / "proc/self/clear_refs").mkdir()
    HostMemory(str(root)).reset_peak()
