"""Modules with torch, imported at their first use, so that collecting the tests does not load torch."""

import warnings
from importlib import import_module

import pytest


class LazyModule:
    """A module of this name, imported when one of its attributes is first read.

    Without torch, as in the environments of scripts/other_pythons, the test is skipped.

    Args:
        name: Its full name, such as "torch" or "costprobe_probes.timing".
    """

    def __init__(self, name):
        self._name = name

    def __getattr__(self, attribute):
        if attribute.startswith("_"):
            raise AttributeError(attribute)  # pytest and inspect look for marks of their own
        with warnings.catch_warnings():
            # torch warns at its import where numpy is not installed, which costprobe does not need.
            warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
            pytest.importorskip("torch")
            module = import_module(self._name)
        return getattr(module, attribute)
