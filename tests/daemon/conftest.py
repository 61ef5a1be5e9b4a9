from contextlib import contextmanager

import pytest
from fakes.daemon import DaemonProcess
from fakes.nvml import FakeNvml


@contextmanager
def daemons(folder):
    """Return a factory of daemons in separate environments; all are stopped at the end."""
    made = []

    def make(**env):
        daemon = DaemonProcess(folder, env)
        made.append(daemon)
        return daemon

    try:
        yield make
    finally:
        for daemon in made:
            daemon.stop()


def gpus_in(folder, count=2, **state):
    """A fake driver with GPUs of 300 W."""
    fake = FakeNvml(folder, gpus=count)
    for gpu in fake.gpus:
        gpu.set(**state)
        gpu.set_power(300.0)
    return fake


@pytest.fixture
def gpus(tmp_path):
    return gpus_in(tmp_path)


@pytest.fixture(scope="module")
def module_gpus(module_folder):
    return gpus_in(module_folder)


@pytest.fixture
def daemon_in(tmp_path):
    with daemons(tmp_path) as make:
        yield make


@pytest.fixture(scope="module")
def module_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("daemon")


@pytest.fixture(scope="module")
def module_daemon_in(module_folder):
    """Return a factory of daemons shared by the tests of a module."""
    with daemons(module_folder) as make:
        yield make
