"""What services say against each other is told with its key before anything is billed by it."""

from pathlib import Path

import pytest

from agent.config_file import ConfigError, parse


def table(name, *devices, **more):
    keys = {"name": name, "url": f"http://127.0.0.1:1/{name}", "engine": "vllm", **more}
    lines = [f'{key} = "{value}"' for key, value in keys.items()]
    held = ", ".join(f'"{device}"' for device in devices)
    return "\n".join(["[[service]]", *lines, f"devices = [{held}]\n"])


def problems(*tables):
    with pytest.raises(ConfigError) as caught:
        parse("\n".join(tables), Path("infercost.toml"))
    return caught.value.problems


def test_services_that_share_nothing_have_windows_of_their_own():
    config = parse(table("a", "gpu0") + table("b", "gpu1", window="1m"), Path("x"))
    assert [service.window_s for service in config.service] == [300, 60]


def test_a_name_is_one_services():
    (problem,) = problems(table("a", "gpu0"), table("a", "gpu1"))
    assert problem == "service[1].name: 'a' is taken; give each service its own"


@pytest.mark.parametrize("devices", [("gpu0", "gpu0"), ("gpu0.mig0", "gpu0.mig1")])
def test_devices_of_one_board_are_divided_over_one_window(devices):
    (problem,) = problems(table("a", devices[0]), table("b", devices[1], window="1m"))
    assert problem.startswith("service[1].window: 1m, but service[0] has 5m and both hold gpu0")


def test_no_more_than_a_whole_device_is_given_away():
    (problem,) = problems(
        table("a", "gpu0", share="60%"),
        table("b", "gpu0", "gpu1", share="50%"),
        table("c", "gpu1", share="50%"),
    )
    assert problem.startswith("service[1].share: the shares of gpu0 add up to 110%")


def test_what_is_wrong_in_one_table_is_told_once():
    found = problems(
        table("a", "gpu0", window="soon", share="most"), table("b", "gpu0", share="20%")
    )
    assert sorted(problem.split(":")[0] for problem in found) == [
        "service[0].share",
        "service[0].window",
    ]
