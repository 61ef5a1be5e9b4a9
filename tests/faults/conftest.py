"""Fixtures of the fault tests: a daemon, and its host."""

import pytest
from fakes.daemon import DaemonProcess
from fakes.nvml import FakeNvml


@pytest.fixture
def daemon_in(tmp_path):
    """Creates a daemon with the test's environment; stops it at the end."""
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
    """Creates a host with the given number of GPUs, each under load."""

    def make(count, **options):
        fake = FakeNvml(tmp_path, gpus=count, **options)
        for gpu in fake.gpus:
            gpu.set_power(300.0)
        return fake

    return make
