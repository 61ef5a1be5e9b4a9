"""One device or server with its sensors and prices, for a command that runs a probe without a daemon."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from types import FrameType

import click

from costprobe.adapters.host.files import evict
from costprobe.adapters.host.host_name import host_tags
from costprobe.adapters.host.processes import SignalFlag
from costprobe.adapters.probe_child.results import ModelStart, ProbeFault, ProbeProgress
from costprobe.adapters.store.database import StoreError
from costprobe.adapters.store.ledger import MemoryLedger
from costprobe.adapters.store.write import Store
from costprobe.core.clock import SystemClock
from costprobe.core.records import TOGETHER, Device, Point
from costprobe.devices.use import DeviceWindows
from costprobe.pricing.book import Terms
from costprobe.pricing.prices import RememberedPrices
from costprobe.probing.cost import ProbeRun
from costprobe.probing.jobs import BUSY_CHECK_S, ProbeAccounts
from costprobe.probing.load_curve import LoadStep
from costprobe.probing.run import (
    AnyProbe,
    ColdStarts,
    Measurer,
    ProbeTarget,
    measured_starts,
    targets,
)
from costprobe.probing.settings import ProbeConfig
from costprobe.ui.cli.support.command_prices import echo_notes, stored_prices
from costprobe.ui.cli.support.control_client import NoDaemonError, ask
from costprobe.ui.cli.support.discovery import short_lived_sensor
from costprobe.ui.cli.support.known_names import unknown_name
from costprobe.ui.cli.support.place import Settings, bad_input
from costprobe.ui.cli.views.progress import ProgressBar


class Bench:
    """One device or server with its sensors and prices, while a command runs.

    Attributes:
        bar: Progress of the run.
        tags: Host and static labels.
    """

    def __init__(
        self,
        measurer: Measurer,
        accounts: ProbeAccounts,
        prices: RememberedPrices,
        target: ProbeTarget,
        tags: dict[str, str],
    ) -> None:
        self.bar = ProgressBar()
        self.tags = tags
        self._measurer = measurer
        self._accounts = accounts
        self._prices = prices
        self._target = target

    @property
    def device(self) -> str:
        """Name of the device or server."""
        return self._target.name

    @property
    def model(self) -> str:
        """Model of the device, or of each of a server's."""
        return TOGETHER.join(device.model for device in self._target.devices)

    @property
    def is_on_cpu(self) -> bool:
        """Whether the device is the host's CPUs."""
        return any(device.is_host for device in self._target.devices)

    @property
    def devices(self) -> Sequence[str]:
        """Names of the devices."""
        return [device.name for device in self._target.devices]

    def wait_idle(self, longest_s: float) -> bool:
        """Wait until no device is busy with other work; return whether that was within longest_s."""
        ends_s = time.monotonic() + longest_s
        # The sensors need two samples.
        self.wait(BUSY_CHECK_S)
        while any(self._measurer.is_busy(device) for device in self._target.devices):
            if time.monotonic() >= ends_s or self.wait(BUSY_CHECK_S):
                return False
        return True

    def wait(self, seconds: float) -> bool:
        """Wait; return True as soon as the command has to end."""
        return self._measurer.is_ended_within(seconds)

    @property
    def terms(self) -> Terms | None:
        """The price terms in force; None without a price."""
        return self._prices.terms_now(self._target.name)

    def run(
        self,
        probe: AnyProbe,
        *,
        search_anew: bool = False,
        naive: bool = False,
        load: LoadStep | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> ProbeRun:
        """Run once and return the measurement.

        Args:
            probe: The probe.
            search_anew: True to search the batch even if a result is known.
            naive: True to measure with common mistakes of timing, too.
            load: Point of a load curve that a run against a server measures.
            check: Called with each progress; what it raises ends the run.

        Raises:
            click.ClickException: The run has no result.
        """

        def on_progress(progress: ProbeProgress) -> None:
            check()
            self.bar.show(f"{self._target.name} {probe.name}", progress)

        outcome = self._measurer.run(
            probe,
            self._target,
            energy=probe.carries_energy,
            on_progress=on_progress,
            search_anew=search_anew,
            naive=naive,
            load=load,
        )
        if isinstance(outcome, ProbeFault):
            raise self._failed(probe, outcome)
        return outcome

    def starts(self, probe: ProbeConfig, runs: int) -> ColdStarts:
        """Start the model so often with each state of the page cache.

        Raises:
            click.ClickException: A start failed.
        """
        starts = measured_starts(partial(self._start, probe), evict, runs)
        if isinstance(starts, ProbeFault):
            raise self._failed(probe, starts)
        self.bar.clear()
        return starts

    def try_once(self, probe: AnyProbe) -> None:
        """Run one pass of a model in a new process, or send one request to a server.

        Raises:
            click.ClickException: It failed.
        """
        if isinstance(probe, ProbeConfig):
            outcome = self._start(probe, list_files=False)
            if isinstance(outcome, ProbeFault):
                raise self._failed(probe, outcome)
        else:
            one = {"requests": 1, "warmup_requests": 0, "energy": False}
            self.run(probe.model_copy(update=one))
        self.bar.clear()

    def _start(self, probe: ProbeConfig, *, list_files: bool) -> ModelStart | ProbeFault:
        return self._measurer.start(
            probe,
            self._target.devices[0],
            list_files=list_files,
            on_progress=lambda progress: self.bar.show(
                f"{self._target.name} {probe.name}", progress
            ),
        )

    def _failed(self, probe: AnyProbe, fault: ProbeFault) -> click.ClickException:
        words = "\n".join(("", *fault.stderr_tail))
        text = f"{probe.name} on {self._target.name}: {fault.title}{words}"
        return bad_input(text) if fault.kind == "config" else click.ClickException(text)

    def measured(self, probe: AnyProbe) -> ProbeRun:
        """Return the run with its cost."""
        return self.priced(self.run(probe))

    def priced(self, run: ProbeRun) -> ProbeRun:
        """Return a run with its cost at the prices in force."""
        return self._accounts.take_probe(run)


@contextmanager
def open_bench(
    settings: Settings, probe: AnyProbe, device: str | None, *, notes: bool = True
) -> Iterator[Bench]:
    """Open the sensors and prices for the probe of a command; SIGINT and SIGTERM end its run.

    Args:
        settings: The configuration.
        probe: The probe.
        device: Name or UUID of the device; None for the first of the probe's.
        notes: Whether notes on prices are printed.

    Raises:
        click.ClickException: No such device.
    """
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
        tags = host_tags(config.host)
        known = stored_prices(settings)
        book, carbon = known.book(devices), known.carbon_book(devices)
        if notes:
            echo_notes(known)
        prices = RememberedPrices(book, ledger, clock, carbon)
        accounts = ProbeAccounts(prices, ledger, clock, tags, lambda *_: ())
        folder = settings.store_path.parent
        windows = DeviceWindows(sensor, clock)
        measurer = Measurer(windows, ledger, folder, stop, clock.monotonic_ns)
        try:
            yield Bench(measurer, accounts, prices, target, tags)
        finally:
            measurer.close()


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


# Rows in a request to the daemon, which has at most 64 KiB.
BATCH = 16


def keep(settings: Settings, rows: Sequence[Point]) -> None:
    """Store rows, through the daemon if it is running, because it is the only writer.

    Raises:
        click.ClickException: They cannot be stored.
    """
    documents = [
        {
            "measurement": row.measurement,
            "tags": dict(row.tags),
            "fields": dict(row.fields),
            "time_ns": row.time_ns,
        }
        for row in rows
    ]
    path, stored = settings.store_path, 0
    for batch in (documents[at : at + BATCH] for at in range(0, len(documents), BATCH)):
        try:
            # The daemon may have another store; it then stores nothing.
            kept = ask(settings, {"do": "keep", "store": str(path.resolve()), "rows": batch})
        except NoDaemonError:
            break
        if kept != len(batch):
            break
        stored += kept
    if stored == len(rows):
        return
    try:
        with closing(Store.open(path, SystemClock())) as store:
            store.append(rows[stored:])
    except StoreError as error:
        raise click.ClickException(f"the measurement was not stored: {error}") from error
