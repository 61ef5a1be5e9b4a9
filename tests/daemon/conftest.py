import pytest
from fakes.daemon import DaemonProcess


@pytest.fixture
def daemon_in(tmp_path):
    """Makes a daemon in an environment of the test's own; stopped at the end."""
    made = []

    def make(**env):
        daemon = DaemonProcess(tmp_path, env)
        made.append(daemon)
        return daemon

    yield make
    for daemon in made:
        daemon.stop()
