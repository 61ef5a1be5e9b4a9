"""Code and files that the configuration names: torch in their interpreters, and who may write them."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from costprobe.adapters.clouds.source import SourceError
from costprobe.adapters.host.files import ROOT, other_writer
from costprobe.adapters.host.processes import child_environment
from costprobe.adapters.http.access import secret_places
from costprobe.adapters.probe_child.runner import PROBES_FOLDER
from costprobe.adapters.store.settings import StoreConfig
from costprobe.configuration import Config
from costprobe.core.config.fields import SourceConfig
from costprobe.core.outside import bounded_json, bounded_object
from costprobe.core.records import natural
from costprobe.core.units import counted
from costprobe.pricing.electricity import parse_carbon
from costprobe.pricing.plans import FeedPlan, parse_spot
from costprobe.pricing.prices import read_output
from costprobe.probing.run import AnyProbe
from costprobe.probing.settings import ProbeConfig
from costprobe.ui.cli.support.checks import Check
from costprobe.ui.cli.support.discovery import discovered_devices
from costprobe.ui.cli.support.service_venv import torch_arguments

TORCH_TIMEOUT_S: Final = 120.0
MAX_FACTS_CHARS: Final = 1 << 16
WRITE_FIX: Final = "let root alone write it and its folders: chown root, chmod go-w"
# Run in the interpreter of a probe, which may lack costprobe.
TORCH_PROGRAM: Final = PROBES_FOLDER / "torch_facts.py"
CUDA_DRIVER: Final = PROBES_FOLDER / "cuda_driver.py"


def torch_checks(probes: Sequence[AnyProbe]) -> Iterator[Check]:
    """Check torch in every interpreter of a probe that runs a model."""
    for python, modules in _by_interpreter(probes).items():
        yield from _torch_check(python, modules)


def module_problems(probes: Sequence[AnyProbe]) -> Iterator[str]:
    """Yield the probes whose module is not found by its interpreter; none of its code is run."""
    for python, models in _by_interpreter(probes).items():
        modules = [probe for probe in models if probe.module is not None]
        done = _run(python, "", modules) if modules else None
        if isinstance(done, subprocess.CompletedProcess):
            for check in _module_checks(modules, done.stdout.partition("\n")[0]):
                if check.state == "bad":
                    yield f"{check.name}: {check.detail}; {check.fix}"


def _by_interpreter(probes: Sequence[AnyProbe]) -> Mapping[str, Sequence[ProbeConfig]]:
    found: dict[str, list[ProbeConfig]] = {}
    for probe in probes:
        if isinstance(probe, ProbeConfig):
            found.setdefault(str(probe.python or sys.executable), []).append(probe)
    return dict(sorted(found.items()))


def _run(
    python: str, driver: str, modules: Sequence[ProbeConfig]
) -> subprocess.CompletedProcess[str] | Check:
    """Run TORCH_PROGRAM in an interpreter; return its result, or the check that says why there is none."""
    name = f"torch under {python}"
    writer = other_writer(Path(python), {ROOT})
    if os.geteuid() == ROOT and writer is not None:
        return Check(name, "bad", f"not run by root: {writer}", WRITE_FIX)
    names = [f"{probe.path or ''}:{str(probe.module).partition(':')[0]}" for probe in modules]
    try:
        return subprocess.run(  # noqa: S603 - the operator's own interpreter, no shell
            [python, "-c", TORCH_PROGRAM.read_text(), driver, *names],
            capture_output=True,
            text=True,
            timeout=TORCH_TIMEOUT_S,
            # Its own session, without a terminal: code of another user could type into that of root.
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=child_environment(os.environ),
            check=False,
        )
    except OSError as error:
        fix = "set python in [[probe]] to one with torch"
        return Check(name, "bad", str(error.strerror), fix)
    except subprocess.TimeoutExpired:
        words = f"no answer in {TORCH_TIMEOUT_S:.0f} s"
        return Check(name, "bad", words, "check whether the driver hangs: dmesg")


def _torch_check(python: str, probes: Sequence[ProbeConfig]) -> Iterator[Check]:
    """Import torch in an interpreter, and find the modules of probes without importing them."""
    modules = [probe for probe in probes if probe.module is not None]
    done = _run(python, str(CUDA_DRIVER), modules)
    if isinstance(done, Check):
        yield done
        return
    lines = done.stdout.strip().splitlines()
    yield from _module_checks(modules, (lines or [""])[0])
    name = f"torch under {python}"
    if done.returncode != 0:
        words = (done.stderr.strip().splitlines() or ["no output"])[-1]
        yield Check(name, "bad", words, f"{python} -m pip install {' '.join(torch_arguments())}")
        return
    yield _found_torch(name, (lines or [""])[-1])


def _found_torch(name: str, line: str) -> Check:
    """Return the check by the last line of TORCH_PROGRAM's output."""
    try:
        facts = bounded_object(line, MAX_FACTS_CHARS)
        cuda, names, torch = facts["cuda"], ", ".join(facts["names"]), str(facts["torch"])
        problem = str(facts["problem"])
    except (ValueError, KeyError, TypeError):
        fix = "set python in [[probe]] to an interpreter, which prints nothing else"
        return Check(name, "bad", "its output is not that of our program", fix)
    if cuda:
        return Check(name, "good", f"{torch}, CUDA on {names}", "")
    if problem:
        return Check(name, "bad", f"{torch} cannot use CUDA", problem)
    if Path("/dev/nvidiactl").exists():
        fix = "install a CUDA build of torch that the driver supports"
        return Check(name, "bad", f"{torch} finds no CUDA device", fix)
    return Check(name, "good", f"{torch}, CPU only", "")


def _module_checks(probes: Sequence[ProbeConfig], line: str) -> Iterator[Check]:
    """Check that the modules of probes are found, and who may write them, at the places that an interpreter printed."""
    try:
        places = bounded_json(line)
        found = list(zip(probes, places, strict=True))
    except (TypeError, ValueError):
        return  # a wrapper that prints something else
    for probe, files in found:
        module = str(probe.module).partition(":")[0]
        if not files:
            detail = f"its interpreter does not find the module {module}"
            fix = "set path in [[probe]] to its folder, or python to the interpreter that has it"
            yield Check(f"probe {probe.name}", "bad", detail, fix)
        names = [file for file in files or () if isinstance(file, str)]
        yield from _write_checks((f"module {module}", Path(file)) for file in names)


def secret_checks(config: Config) -> Iterator[Check]:
    """Check that not every user of the host can read the files with secrets."""
    for place in secret_places(config):
        with suppress(OSError):  # another check reports a file that cannot be read
            if not place.is_credential and Path(place.name).stat().st_mode & stat.S_IROTH:
                detail = f"every user of this host can read {place.name}"
                yield Check(f"secret of {place.key}", "note", detail, f"chmod o= {place.name}")


def write_checks(config_path: Path | None, config: Config) -> Iterator[Check]:
    """Check that others may write neither the configuration nor what it names: a writer decides what runs."""
    files = [*_named_files("", config), ("python", Path(sys.executable))]
    if config_path is not None:
        files.insert(0, ("configuration", config_path))
    problems = list(_write_checks(files))
    yield from problems
    if not problems:
        number = counted(len(files), "file")
        yield Check(
            "write access", "good", f"{number} and their folders: root and this user alone", ""
        )


def _write_checks(files: Iterable[tuple[str, Path]]) -> Iterator[Check]:
    for key, file in files:
        writer = other_writer(file, {ROOT, os.geteuid()})
        if writer is not None:
            detail = f"{file}: {writer}"
            yield Check(f"write access to {key}", "note", detail, WRITE_FIX)


def _named_files(key: str, value: object) -> Iterator[tuple[str, Path]]:
    """Yield the files that a part of the configuration names, except the store, with their keys."""
    if isinstance(value, Path):
        yield key, value
    elif isinstance(value, BaseModel) and not isinstance(value, StoreConfig):
        for name, field in value:
            inner = f"{key}.{name}" if key else name
            if name == "command" and field:
                yield inner, Path(shutil.which(field[0]) or field[0])
            elif name == "kind" and ":/" in str(field):
                yield inner, Path(str(field).partition(":")[2])
            else:
                yield from _named_files(inner, field)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _named_files(f"{key}[{index}]", item)


def device_notes(config: Config) -> Iterator[str]:
    """Devices that the file names and this host does not have now; a sensor process looks."""
    named_devices = list(_named_devices(config))
    if not named_devices:
        return
    devices = discovered_devices(config.telemetry)
    present = {device.name for device in devices}
    for key, device in named_devices:
        if device not in {*present, *(device.uuid for device in devices)}:
            there = ", ".join(sorted(present, key=natural)) or "none"
            yield f"{key}: this host has no device {device} now; devices: {there}"


def _named_devices(config: Config) -> Iterator[tuple[str, str]]:
    for index, budget in enumerate(config.budget):
        if budget.device is not None:
            yield f"budget[{index}].device", budget.device
    for index, plan in enumerate(config.price):
        if plan.device is not None:
            yield f"price[{index}].device", plan.device
    for key, tables in (("probe", config.probe), ("service", config.service)):
        for index, table in enumerate(tables):
            for device in () if table.devices == "all" else table.devices:
                yield f"{key}[{index}].devices", device


def source_file_findings(config: Config) -> tuple[list[str], list[str]]:
    """Check the files of prices and carbon intensities, as the daemon will read them.

    Returns:
        Errors of files with content that the daemon would refuse, and notes on files that cannot be
        read now: `key.path: what is wrong`.
    """
    sources: list[tuple[str, SourceConfig, Callable[[str, int], object]]] = [
        (f"price[{index}].file", plan, partial(parse_spot, currency=plan.currency))
        for index, plan in enumerate(config.price)
        if isinstance(plan, FeedPlan)
    ]
    if config.carbon is not None:
        sources.append(("carbon.file", config.carbon, parse_carbon))
    problems, notes = [], []
    for key, source, parse in sources:
        if source.file is not None:
            try:
                parse(read_output(source), time.time_ns())
            except SourceError as error:
                notes.append(f"{key}: {error}")
            except ValueError as error:
                problems.append(f"{key}: {source.file}: {error}")
    return problems, notes
