import pytest
from costprobe.adapters.storage.writer import Store
from fakes.clock import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "costprobe.db"


@pytest.fixture
def store(path, clock):
    store = Store.open(path, clock)
    yield store
    store.close()
