"""Checks across services: names, and windows and shares of shared devices."""

from pathlib import Path

import pytest
from costprobe.configuration import parse
from costprobe.core.config.load import ConfigError
from fakes.cases import check_all
from fakes.services import service_table


def table(name, *devices, **more):
    return service_table(name, f"http://127.0.0.1:1/{name}", *devices, **more)


WRONG = (
    (
        (table("a", "gpu0"), table("a", "gpu1")),
        "service[1].name: 'a' is already used; give each service a unique name",
    ),
    *(
        (
            (table("a", first), table("b", second, window="1m")),
            "service[1].window: 1m, but service[0] has 5m and both use gpu0",
        )
        for first, second in (("gpu0", "gpu0"), ("gpu0.mig0", "gpu0.mig1"))
    ),
    (
        (
            table("a", "gpu0", share="60%"),
            table("b", "gpu0", "gpu1", share="50%"),
            table("c", "gpu1", share="50%"),
        ),
        "service[1].share: the shares of gpu0 add up to 110 %",
    ),
)


def test_services_that_do_not_fit_together_are_refused():
    def check(tables, words):
        with pytest.raises(ConfigError) as caught:
            parse("\n".join(tables), Path("costprobe.toml"))
        (problem,) = caught.value.problems
        assert problem.startswith(words)

    check_all(check, WRONG)
