"""Which tests start processes or servers: found in the code that they and their fixtures refer to."""

import subprocess
import sys
import threading
from functools import cache
from inspect import isclass, isfunction, unwrap
from pathlib import Path
from types import CodeType

from costprobe.adapters.probe_child.runner import ProbeChild, ProbeRunner
from costprobe.adapters.sensors.supervisor import SensorSupervisor

TESTS = str(Path(__file__).parents[1])
# What starts a process, or a server in a thread.
STARTERS = (subprocess, threading, threading.Thread, ProbeChild, ProbeRunner, SensorSupervisor)


def starts_processes(item):
    """Return whether a test or a fixture of it refers to a starter, or to the browser."""
    # pytest offers the fixtures of a test under no public name.
    definitions = item._fixtureinfo.name2fixturedefs.values()  # noqa: SLF001
    fixtures = [found.func for several in definitions for found in several]
    return "browser" in item.fixturenames or any(map(_is_starting, [item.function, *fixtures]))


@cache
def _is_starting(code):
    """Return whether a function or class of the tests refers to a starter, also through others."""
    found, waiting = set(), [code]
    while waiting:
        used = waiting.pop()
        if any(used is starter for starter in STARTERS):
            return True
        if not (isclass(used) or isfunction(used)) or used in found or not _is_of_tests(used):
            continue
        found.add(used)
        if isclass(used):
            waiting += used.__bases__
            waiting += [x.fget if isinstance(x, property) else x for x in vars(used).values()]
        else:
            used = unwrap(used)
            waiting += [used.__globals__.get(name) for name in _names(used.__code__)]
    return False


def _is_of_tests(used):
    return str(getattr(sys.modules.get(used.__module__), "__file__", "")).startswith(TESTS)


def _names(code):
    """Yield the names in the code of a function and of those in it."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)
