import pytest
from store_samples import SteppedClock

from agent.storage.writer import Store


@pytest.fixture
def clock():
    return SteppedClock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "infercost.db"


@pytest.fixture
def store(path, clock):
    store = Store.open(path, clock)
    yield store
    store.close()
