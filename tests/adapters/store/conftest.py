from pathlib import Path

import pytest
from costprobe.adapters.store.write import Store
from fakes.memory import memory_folder


@pytest.fixture
def path():
    with memory_folder() as folder:
        yield Path(folder) / "state" / "costprobe.db"


@pytest.fixture
def store(path, clock):
    store = Store.open(path, clock)
    yield store
    store.close()
