"""`costprobe probe`: one probe run without a daemon, or a sweep over batch sizes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

import click

from costprobe.adapters.probing.model_settings import BUILT_IN_MODELS, ProbeConfig
from costprobe.adapters.probing.outcome import ProbeFault
from costprobe.adapters.probing.start_outcome import StartOutcome
from costprobe.adapters.system.page_cache import evict
from costprobe.adapters.system.signal_event import SignalFlag
from costprobe.app.accounting.accounts import Accounts
from costprobe.app.accounting.documents import report_document
from costprobe.app.accounting.ledger import MemoryLedger
from costprobe.app.configuration import Config
from costprobe.app.measuring.cold_starts import measured_starts
from costprobe.app.measuring.measuring import Measurer
from costprobe.app.measuring.targets import AnyProbe, ProbeTarget, targets
from costprobe.core.clock import SystemClock
from costprobe.core.records import Device
from costprobe.domain.costing.probe.run import MeasuredRun, ProbeReport
from costprobe.ui.cli import sweep as sweeps
from costprobe.ui.cli.cold_start import RUNS_MAX, StartReport
from costprobe.ui.cli.support.discovery import short_lived_sensor
from costprobe.ui.cli.support.examples import ExampleCommand
from costprobe.ui.cli.support.kept_rows import keep
from costprobe.ui.cli.support.known_names import unknown_name
from costprobe.ui.cli.support.loaded_config import LoadedConfig, bad_input
from costprobe.ui.cli.support.name_completion import PROBES, STORED_DEVICES
from costprobe.ui.cli.support.output import echo_json, echo_lines
from costprobe.ui.cli.support.price_books import carbon_book, price_book
from costprobe.ui.cli.views.lines import probe_line
from costprobe.ui.cli.views.progress import ProgressBar
from costprobe.ui.cli.views.sweep_lines import shown

RUNS = 5


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe probe quick  # run the probe `quick` of the file once",
        "costprobe probe ranker --sweep --stored  # the stored result of the last sweep",
        "costprobe probe quick --cold-start --runs 1  # how long a start takes until the first answer",
    ),
)
@click.argument("name", required=False, shell_complete=PROBES)
@click.option(
    "--device", shell_complete=STORED_DEVICES, help="Device to probe (default: the first)."
)
@click.option(
    "--sweep", is_flag=True, help="Measure each batch size: latency, throughput, energy, cost."
)
@click.option(
    "--stored", is_flag=True, help="With --sweep: show the stored sweep, measure nothing."
)
@click.option(
    "--cold-start",
    is_flag=True,
    help="Measure starts of the model: process, load, first answer; page cache warm and cold.",
)
@click.option(
    "--runs",
    type=click.IntRange(1, RUNS_MAX),
    help=f"With --cold-start: starts with each page cache (default: {RUNS}).",
)
@click.option("--json", "as_json", is_flag=True, help="Print the whole result as JSON.")
@click.pass_obj
def command(  # noqa: PLR0913 - click passes each option
    config: str | None,
    *,
    name: str | None,
    device: str | None,
    sweep: bool,
    stored: bool,
    cold_start: bool,
    runs: int | None,
    as_json: bool,
) -> None:
    """Run the probe NAME once: a configured one, or the built-in "transformer" or "cnn".

    With --sweep it searches the batch size, measures each batch size with its energy, finds the
    cheapest one within the probe's latency_bound, and stores the curve.

    With --cold-start it starts the model in new processes, and stores how long each took.
    """
    settings = LoadedConfig(config)
    probe = _chosen(settings.config, name)
    if stored and not sweep:
        raise bad_input("--stored needs --sweep")
    if cold_start and sweep:
        raise bad_input("--cold-start and --sweep are two measurements: remove one")
    if runs is not None and not cold_start:
        raise bad_input("--runs needs --cold-start")
    if cold_start:
        report = _measured_starts(settings, probe, device, runs or RUNS)
        _show(report.document(), report.lines(), as_json=as_json)
        return
    if not sweep:
        with _bench(settings, probe, device) as bench:
            document = report_document(bench.measured(probe))
            bench.bar.clear()
            _show(document, [probe_line(document)], as_json=as_json)
        return
    if not isinstance(probe, ProbeConfig):
        raise bad_input(f"{probe.name}: a server chooses its own batches; remove --sweep")
    if stored:
        curve = sweeps.stored(settings, probe, device)
    else:
        with _bench(settings, probe, device) as bench:
            curve = _measured_curve(bench, probe)
        keep(settings, sweeps.rows_of(curve))
    _show(curve.document(), shown(curve), as_json=as_json)


def _show(document: Any, lines: Iterable[str], *, as_json: bool) -> None:  # noqa: ANN401 - any JSON
    if as_json:
        echo_json(document)
    else:
        echo_lines(lines)


def _measured_starts(
    settings: LoadedConfig, probe: AnyProbe, device: str | None, runs: int
) -> StartReport:
    """Measure and store starts of a probe's model."""
    if not isinstance(probe, ProbeConfig):
        raise bad_input(
            f"{probe.name}: costprobe does not start the server; remove --cold-start, and set"
            " cold_start in [[service]]"
        )
    with _bench(settings, probe, device) as bench:
        report = bench.starts(probe, runs)
    keep(settings, report.rows({**bench.tags, **probe.labels}))
    return report


def _measured_curve(bench: Bench, probe: ProbeConfig) -> sweeps.SweepCurve:
    """Search the batch size, then measure every batch size of the search in full.

    On a CPU without configured threads it does so for 1, 2, 4, ... threads up to all processors.
    """
    peaks: dict[tuple[int | None, int], int] = {}
    reports = []
    for threads in _thread_counts(bench, probe):
        own = {"keep_alive": True, "threads": threads}
        search = {**own, "batch": "auto", "energy": False}
        curve = bench.run(probe.model_copy(update=search), search_anew=True)
        found = {int(point["batch"]): int(point["peak_memory_bytes"]) for point in curve.curve}
        peaks |= {(curve.result.threads, batch): peak for batch, peak in found.items()}
        reports += [
            bench.measured(probe.model_copy(update={**own, "batch": batch}))
            for batch in sorted(found or {curve.result.batch: 0})
        ]
    return sweeps.curve_of(reports, peaks, probe, bench.tags)


def _thread_counts(bench: Bench, probe: ProbeConfig) -> Sequence[int | None]:
    if probe.threads is not None or not bench.is_on_cpu:
        return [probe.threads]
    processors = len(os.sched_getaffinity(0))
    doubled = (1 << exponent for exponent in range(processors.bit_length()))
    return sorted({processors, *(count for count in doubled if count < processors)})


class Bench:
    """One device or server with its sensors and prices, while a command runs.

    Attributes:
        bar: Progress of the run.
        tags: Host and static labels.
    """

    def __init__(
        self, measurer: Measurer, accounts: Accounts, target: ProbeTarget, tags: dict[str, str]
    ) -> None:
        self.bar = ProgressBar()
        self.tags = tags
        self._measurer = measurer
        self._accounts = accounts
        self._target = target

    @property
    def is_on_cpu(self) -> bool:
        """Whether the device is the host's CPUs."""
        return any(device.is_host for device in self._target.devices)

    def run(self, probe: AnyProbe, *, search_anew: bool = False) -> MeasuredRun:
        """Run once and return the measurement.

        Raises:
            click.ClickException: The run has no result.
        """
        outcome = self._measurer.run(
            probe,
            self._target,
            energy=probe.carries_energy,
            on_progress=lambda progress: self.bar.show(
                f"{self._target.name} {probe.name}", progress
            ),
            search_anew=search_anew,
        )
        if isinstance(outcome, ProbeFault):
            raise self._failed(probe, outcome)
        return outcome

    def starts(self, probe: ProbeConfig, runs: int) -> StartReport:
        """Start the model so often with each state of the page cache.

        Raises:
            click.ClickException: A start failed.
        """
        device = self._target.devices[0]

        def start(*, list_files: bool) -> StartOutcome | ProbeFault:
            return self._measurer.start(
                probe,
                device,
                list_files=list_files,
                on_progress=lambda progress: self.bar.show(
                    f"{self._target.name} {probe.name}", progress
                ),
            )

        starts = measured_starts(start, evict, runs)
        if isinstance(starts, ProbeFault):
            raise self._failed(probe, starts)
        self.bar.clear()
        return StartReport(probe.name, device.name, time.time_ns(), starts)

    def _failed(self, probe: AnyProbe, fault: ProbeFault) -> click.ClickException:
        words = "\n".join(("", *fault.stderr_tail))
        return click.ClickException(f"{probe.name} on {self._target.name}: {fault.title}{words}")

    def measured(self, probe: AnyProbe) -> ProbeReport:
        """Return the run with its cost."""
        return self._accounts.take_probe(self.run(probe))


@contextmanager
def _bench(settings: LoadedConfig, probe: AnyProbe, device: str | None) -> Iterator[Bench]:
    stop = SignalFlag()

    def on_signal(number: int, frame: FrameType | None) -> None:
        del number, frame
        stop.set()

    config = settings.config
    with ExitStack() as stack:
        for number in (signal.SIGINT, signal.SIGTERM):
            stack.callback(signal.signal, number, signal.signal(number, on_signal))
        sensor = stack.enter_context(short_lived_sensor(config.telemetry))
        devices = sensor.devices()
        target = _target(devices, probe, device)
        ledger, clock = MemoryLedger(), SystemClock()
        book = price_book(settings, devices)
        tags = config.host.tags
        carbon = carbon_book(settings, devices)
        accounts = Accounts(book, ledger, clock, tags, lambda *_: (), carbon)
        folder = settings.store_path.parent
        measurer = Measurer(sensor, ledger, folder, stop, clock.monotonic_ns)
        try:
            yield Bench(measurer, accounts, target, tags)
        finally:
            measurer.close()


def _chosen(config: Config, name: str | None) -> AnyProbe:
    configured = {probe.name: probe for probe in config.probe}
    if name is None and configured:
        return next(iter(configured.values()))
    name = name or BUILT_IN_MODELS[0]
    if name in configured:
        return configured[name]
    if name in BUILT_IN_MODELS:
        return ProbeConfig.model_validate({"name": name, "kind": name})
    raise unknown_name("probe", name, [*configured, *BUILT_IN_MODELS])


def _target(devices: Sequence[Device], probe: AnyProbe, name: str | None) -> ProbeTarget:
    if name is None:
        all_targets = targets(probe, devices)
        if not all_targets:
            raise click.ClickException("no device was found; see costprobe doctor")
        return all_targets[0]
    for device in devices:
        if name in (device.name, device.uuid):
            return ProbeTarget((device,))
    raise unknown_name("device", name, [device.name for device in devices])
