"""The section [[workload]]: the purposes of a table, and profiles of the load."""

from pathlib import Path

import pytest
from costprobe.configuration import parse
from costprobe.core.config.load import ConfigError
from costprobe.savings.settings import WorkloadConfig
from fakes.cases import check_all

BESIDE = (
    '[[probe]]\nname = "ranker"\n[[service]]\nname = "chat"\nengine = "vllm"\n'
    'url = "http://127.0.0.1:8000"\ndevices = ["gpu0"]\n[[workload]]\nprobe = "ranker"\n'
)


def test_profiles_are_of_a_day_or_a_week():
    day = WorkloadConfig(probe="ranker", per_s_by_hour=(*[0.0] * 8, *[40.0] * 16))
    assert day.profile()[7:9] == day.profile()[24 + 7 : 24 + 9] == (0.0, 40.0)
    assert len(day.profile()) == 168
    week = WorkloadConfig(probe="ranker", per_s_by_hour=tuple(map(float, range(168))))
    assert week.profile()[167] == 167.0


def test_tables_with_errors_name_the_fix():
    def check(text, message):
        with pytest.raises(ConfigError) as caught:
            parse(BESIDE + text, Path("c.toml"))
        assert message in str(caught.value)

    check_all(
        check,
        [
            ("", "give one of service, as_device, per_s and per_s_by_hour"),
            ('per_s = 1\nas_device = "gpu1"\n', "give one of service"),
            ("per_s_by_hour = [1, 2]\n", "per_s_by_hour has 2 values; write 24 or 168"),
            ('as_device = "gpu0"\n', 'write service = "chat", which uses this device'),
            (
                'as_device = "gpu1"\n[[workload]]\nprobe = "ranker"\nas_device = "gpu1"\n',
                "another [[workload]] has the same device; remove one",
            ),
        ],
    )
