import pytest
from fakes.clock import FakeClock

from agent.storage.writer import Store


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "infercost.db"


@pytest.fixture
def store(path, clock):
    store = Store.open(path, clock)
    yield store
    store.close()
