"""A real InfluxDB that the tests of this folder share."""

import pytest
from fakes.servers import InfluxDB, running


@pytest.fixture(scope="session")
def influxdb(tmp_path_factory):
    with running(InfluxDB, tmp_path_factory.mktemp("influxdb"), "influxd") as server:
        yield server
