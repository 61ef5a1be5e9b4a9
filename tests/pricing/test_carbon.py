"""Emissions of electricity, by hand-computed examples."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from costprobe.core.records import Device
from costprobe.pricing.electricity import (
    CarbonBook,
    CarbonConfig,
    emission,
    parse_carbon,
)
from costprobe.pricing.timed import TimedValue, TimedValues
from fakes.cases import check_all
from pydantic import ValidationError
from record.record_files import check_outcomes

S = 10**9
# 2026-01-01.
T = 1_767_225_600
HOUR_NS = 3600 * S
GPUS = [Device(f"gpu{i}", "gpu", f"GPU-{i}", "NVIDIA H100 80GB HBM3") for i in range(2)]


def carbon(**keys):
    return CarbonConfig.model_validate(keys)


def ns(*when):
    return int(datetime(*when, tzinfo=UTC).timestamp()) * S


def test_contradicting_keys_are_rejected():
    def is_refused(keys):
        with pytest.raises(ValidationError):
            carbon(**keys)

    hours = [{"start": "00:00", "end": "06:00", "g_per_kwh": 1}]
    sources = [{}, {"g_per_kwh": 300, "file": "/x"}, {"file": "/x", "url": "http://x"}]
    wrong = [{"file": "/x", "hours": hours}, {"g_per_kwh": 1, "pue": 0.9}, {"url": "ftp://x"}]
    check_all(is_refused, [*sources, *wrong, {"g_per_kwh": -1}, {"g_per_kwh": 5001}])


def test_series_is_valid_from_its_first_value_until_stale():
    config = carbon(file="/nowhere", stale_after="2h")
    start = ns(2026, 1, 1)
    known = TimedValues().updated(
        [TimedValue(start, Decimal(300)), TimedValue(start + HOUR_NS, Decimal(240))],
        start + HOUR_NS,
    )
    book = CarbonBook(config, None, GPUS, lambda: known)
    assert book.intensity("gpu0", start - 1) is None
    found = [book.intensity("gpu0", start + hours * HOUR_NS) for hours in (0, 1, 3, 4)]
    assert [one.g_per_kwh for one in found] == [300, 240, 240, 240]
    assert [one.method for one in found] == ["series", "series", "series", "stale"]
    assert found[3].words == "of 2026-01-01 01:00 UTC, stale"
    assert emission(1.0, found[3]).method == "stale"


def test_intensity_texts_are_parsed_or_rejected():
    """The record has the seconds since T and grams of each, or the error; see `record_files`."""
    check_outcomes(
        "carbon_texts.json",
        lambda text: [
            [one.time_ns // S - T, str(one.value)] for one in parse_carbon(text, (T + 7200) * S)
        ],
    )
