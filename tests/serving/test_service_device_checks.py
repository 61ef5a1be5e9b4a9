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


def test_services_without_shared_devices_have_their_own_windows():
    config = parse(table("a", "gpu0") + table("b", "gpu1", window="1m"), Path("x"))
    assert [service.window_s for service in config.service] == [300, 60]


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


def test_error_in_one_table_is_reported_once():
    found = problems(
        table("a", "gpu0", window="soon", share="most"), table("b", "gpu0", share="20%")
    )
    assert sorted(problem.split(":")[0] for problem in found) == [
        "service[0].share",
        "service[0].window",
    ]
