"""The record is in UTC, and of one version of Python."""

import sys
import time

import pytest


@pytest.fixture(autouse=True)
def _same_surroundings(monkeypatch):
    if sys.version_info[:2] != (3, 11):
        pytest.skip("recorded on Python 3.11: sum() of floats has other last digits since 3.12")
    monkeypatch.setenv("TZ", "UTC")
    for name in ("COSTPROBE_CONFIG", "RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
