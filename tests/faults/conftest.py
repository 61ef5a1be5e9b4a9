"""What the fault matrix shares: a daemon to do things to, and the figures of a run."""

import json
import os
from pathlib import Path

import pytest
from fakes.daemon import DaemonProcess
from fakes.nvml import FakeNvml, require_gcc


@pytest.fixture
def daemon_in(tmp_path):
    """Makes a daemon in an environment of the test's own; stopped at the end."""
    made = []

    def make(wrapper=(), **env):
        daemon = DaemonProcess(tmp_path, env, wrapper)
        made.append(daemon)
        return daemon

    yield make
    for daemon in made:
        daemon.stop()


@pytest.fixture
def gpus_of(tmp_path):
    """Makes a host of so many GPUs, each under load."""
    require_gcc()

    def make(count, **options):
        fake = FakeNvml(tmp_path, gpus=count, **options)
        for gpu in fake.gpus:
            gpu.set_power(300.0)
        return fake

    return make


@pytest.fixture
def figures():
    """Keeps what a case came to, one JSON line each, where a long run asks for it."""
    path = os.environ.get("INFERCOST_SOAK_FIGURES")

    def keep(case, **values):
        if path is not None:
            with Path(path).open("a") as file:
                file.write(json.dumps({"case": case, **values}) + "\n")

    return keep
