"""Checks across services: windows and shares of shared devices."""

from pathlib import Path

import pytest
from costprobe.configuration import parse
from costprobe.core.config.load import ConfigError
from fakes.services import service_table


def table(name, *devices, **more):
    return service_table(name, f"http://127.0.0.1:1/{name}", *devices, **more)


def problems(*tables):
    with pytest.raises(ConfigError) as caught:
        parse("\n".join(tables), Path("costprobe.toml"))
    return caught.value.problems


def test_service_names_are_unique():
    (problem,) = problems(table("a", "gpu0"), table("a", "gpu1"))
    assert problem == "service[1].name: 'a' is already used; give each service a unique name"


@pytest.mark.parametrize("devices", [("gpu0", "gpu0"), ("gpu0.mig0", "gpu0.mig1")])
def test_services_on_one_board_need_one_window(devices):
    (problem,) = problems(table("a", devices[0]), table("b", devices[1], window="1m"))
    assert problem.startswith("service[1].window: 1m, but service[0] has 5m and both use gpu0")


def test_shares_of_a_device_are_at_most_one():
    (problem,) = problems(
        table("a", "gpu0", share="60%"),
        table("b", "gpu0", "gpu1", share="50%"),
        table("c", "gpu1", share="50%"),
    )
    assert problem.startswith("service[1].share: the shares of gpu0 add up to 110 %")
