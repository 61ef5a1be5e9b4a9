"""A driver that cannot be used where a GPU belongs is a fault, not a host without a GPU."""

import itertools
import json
import os
import subprocess
import sys

from costprobe.adapters.sensors.child.nvml import expected_gpu
from costprobe_probes.cuda_driver import FIXES
from fakes.nvml import FakeNvml
from fakes.programs import require
from record.record_files import check_outcomes

DRIVER_NOT_LOADED, UNKNOWN = 9, 999
OF_32_BITS = b"\x7fELF\x01\x01\x01".ljust(64, b"\0")


def pci_device(root, vendor="0x10de", class_="0x030200", driver=None):
    device = root / "sys/bus/pci/devices/0000:01:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{class_}\n")
    if driver is not None:
        (device / "driver").symlink_to(f"../../drivers/{driver}")
    return root


def test_gpu_is_expected_by_its_pci_device_the_container_runtime_and_the_store(tmp_path):
    numbers = itertools.count()

    def why(text):
        pci, environ, is_known = json.loads(text)
        root = pci_device(tmp_path / str(next(numbers)), **pci)
        return expected_gpu(root, environ, is_known=is_known)

    check_outcomes("expected_gpus.json", why)


def test_driver_that_cannot_be_used_is_named_with_the_hint_of_its_code(watch, tmp_path):
    root = str(pci_device(tmp_path / "root"))
    (tmp_path / "empty").mkdir()
    fake, empty = FakeNvml(tmp_path), FakeNvml(tmp_path / "empty", gpus=0)

    def library(data):
        folder = tmp_path / f"library{len(data)}"
        folder.mkdir()
        (folder / FakeNvml.SONAME).write_bytes(data)
        return {"LD_LIBRARY_PATH": str(folder)}

    for env, code, words in (
        (library(b""), None, ("LIBRARY_NOT_FOUND", "file too short")),
        (library(OF_32_BITS), None, ("LIBRARY_NOT_FOUND", "wrong ELF class")),
        (fake.env(), DRIVER_NOT_LOADED, ("DRIVER_NOT_LOADED", "modprobe nvidia")),
        (fake.env(), UNKNOWN, ("UNKNOWN", "/dev/nvidiactl", "restart a container")),
        (empty.env(), None, ("NO_DEVICE", "/dev/nvidia*")),
    ):
        fake.clear()
        if code is not None:
            fake.fail("nvmlInitWithFlags", code)
        watched = watch(env=env, sysfs_root=root, cpu="auto")
        # The processors are no replacement for a GPU.
        assert watched.supervisor.wait_for_devices(60) == ()
        fault = watched.status["driver_faults"]["nvidia"]
        assert [word for word in (*words, "0000:01:00.0") if word not in fault] == [], fault


def test_cuda_states_its_own_code(tmp_path):
    program = (
        "from costprobe_probes.cuda_driver import driver_code, driver_problem\n"
        "print(driver_problem(driver_code()))"
    )
    source = tmp_path / "cuda.c"
    source.write_text(
        "#include <stdlib.h>\nint cuInit(unsigned flags) "
        '{ return flags ? 1 : atoi(getenv("CODE")); }\n'
    )
    library = tmp_path / "libcuda.so.1"
    subprocess.run([require("gcc"), "-shared", "-fPIC", "-o", library, source], check=True)
    for code in (0, 100, *FIXES):
        env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "CODE": str(code)}
        done = subprocess.run(
            [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip().startswith(f"cuInit returns {code}, " if code in FIXES else "")
        assert bool(done.stdout.strip()) == (code in FIXES)
