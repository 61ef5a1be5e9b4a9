from contextlib import contextmanager

import pytest
from fakes.daemon import DaemonProcess


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
