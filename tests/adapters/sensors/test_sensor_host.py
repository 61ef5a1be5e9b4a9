"""The child on a host whose /proc and /sys are a folder of the test."""

import subprocess
import sys

import pytest

STAT = "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 100 0 100 800 0 0 0 0 0 0\n"
MEMINFO = "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\n"


@pytest.fixture
def host(tmp_path):
    files = {
        "proc/stat": STAT,
        "proc/meminfo": MEMINFO,
        "proc/cpuinfo": "model name : Fake CPU\n",
        "etc/machine-id": "feedbeef\n",
        "sys/class/powercap/intel-rapl:0/name": "package-0\n",
        "sys/class/powercap/intel-rapl:0/energy_uj": "1000000\n",
        "sys/class/powercap/intel-rapl:0/max_energy_range_uj": "262143328850\n",
        "sys/class/hwmon/hwmon0/name": "k10temp\n",
        "sys/class/hwmon/hwmon0/temp1_input": "45500\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_rapl_is_read_from_the_given_root(start_child, host, wait_until):
    child = start_child(cpu="auto", gpus=False, sysfs_root=str(host))
    assert child.wait_for("handshake")["devices"] == [
        {
            "name": "cpu",
            "kind": "cpu",
            "uuid": "feedbeef",
            "model": "Fake CPU",
            "memory_bytes": 1000 * 1024,
            "parent": "",
            "slices": 0,
            "slices_of": 0,
            "gpu_instance": None,
            "is_persistent": None,
            "is_exclusive": False,
        }
    ]
    # A counter that does not advance is no energy of 0 J.
    fields = child.wait_for("reading")["fields"]
    assert not {"energy_j", "power_w", "energy_method"} & fields.keys()
    advanced = host / "advanced"
    advanced.write_text("8500000\n")
    advanced.rename(host / "sys/class/powercap/intel-rapl:0/energy_uj")
    wait_until(lambda: any("energy_j" in m.get("fields", {}) for m in child.messages))
    fields = next(m["fields"] for m in child.messages if "energy_j" in m.get("fields", {}))
    assert (fields["energy_j"], fields["energy_method"]) == (7.5, "rapl")
    assert fields["temp_c"] == 45.5
    assert (fields["mem_used_bytes"], fields["mem_total_bytes"]) == (600 * 1024, 1000 * 1024)
    # The folder's /proc/stat stands still.
    assert {m["code"] for m in child.messages if m["type"] == "fault"} <= {"NO_TICKS"}


def test_host_without_proc_is_a_fault(start_child, tmp_path):
    child = start_child(cpu=True, gpus=False, sysfs_root=str(tmp_path))
    fault = child.wait_for("fault", device="cpu")
    assert (fault["call"], fault["reaction"]) == ("/proc/stat", "quarantine")
    assert child.wait_for("handshake")["devices"] == []


def test_malformed_commands_are_ignored(start_child):
    child = start_child(cpu=True, gpus=False)
    child.wait_for("handshake")
    child.process.stdin.write(b"nonsense\n" + b"x" * 100_000 + b'\n{"cmd":"energy"}\n')
    child.send({"cmd": "dance"})
    child.send({"cmd": "mark", "device": "gpu9"})
    child.send({"cmd": "stop"})
    assert child.wait_for("exit")["reason"] == "stop"


def test_child_loads_no_large_package(request):
    code = (
        "import sys, costprobe.adapters.sensors.child.main\n"
        "big = {'torch', 'numpy', 'pydantic', 'apscheduler', 'asyncio', 'sqlite3', 'click'}\n"
        "print(sorted(big & sys.modules.keys()))"
    )
    command = [sys.executable, "-c", code]
    root = request.config.rootpath
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
