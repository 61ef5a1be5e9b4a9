"""Fixtures of the notifier tests."""

import pytest
from fakes.servers import Alertmanager, running


@pytest.fixture(scope="session")
def alertmanager(tmp_path_factory):
    """A real Alertmanager; each test has labels of its own there."""
    folder = tmp_path_factory.mktemp("alertmanager")
    with running(Alertmanager, folder, "prometheus-alertmanager") as server:
        yield server


@pytest.fixture
def secret(tmp_path):
    """Write a secret to a separate file and return its path."""

    def write(name, content):
        path = tmp_path / name
        path.write_text(content)
        return path

    return write
