"""`infercost probe`: one probe now, without a daemon; or a sweep over its batches."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import click

from agent.cli import sweep as sweeps
from agent.cli.books import book_of, carbon_of
from agent.cli.completing import PROBES, STORED_DEVICES
from agent.cli.discovery import short_lived_sensor
from agent.cli.lines import probe_line
from agent.cli.progress import ProgressBar
from agent.cli.settings import Settings, bad_input
from agent.clock import SystemClock
from agent.config import Config
from agent.config_probe import BUILT_IN, ProbeConfig
from agent.daemon.accounts import Accounts, Measured, MemoryLedger, ProbeReport
from agent.daemon.measuring import AnyProbe, Measurer, Target
from agent.daemon.running import host_name, targets
from agent.daemon.status import report_document
from agent.model import Device
from agent.probing.outcome import ProbeFault
from agent.signal_flag import SignalFlag


@click.command()
@click.argument("name", required=False, shell_complete=PROBES)
@click.option(
    "--device", shell_complete=STORED_DEVICES, help="On this device only (default: the first)."
)
@click.option("--sweep", is_flag=True, help="Batch by batch: latency, throughput, energy and cost.")
@click.option("--stored", is_flag=True, help="With --sweep: show the last one, measure nothing.")
@click.option("--json", "as_json", is_flag=True, help="The whole result, as JSON.")
@click.pass_obj
def command(
    config: str | None,
    *,
    name: str | None,
    device: str | None,
    sweep: bool,
    stored: bool,
    as_json: bool,
) -> None:
    """Runs the probe NAME once: a configured one, or the built-in "transformer" or "cnn".

    With --sweep it searches the batch, measures each batch with its energy, names the cheapest that
    meets the probe's latency_bound, and keeps the curve in the store.
    """
    settings = Settings(config)
    probe = _chosen(settings.config, name)
    if stored and not sweep:
        raise bad_input("--stored goes with --sweep")
    if not sweep:
        with _bench(settings, probe, device) as bench:
            document = report_document(bench.measured(probe))
            bench.bar.line(json.dumps(document) if as_json else probe_line(document))
        return
    if not isinstance(probe, ProbeConfig):
        raise bad_input(f"{probe.name}: a server chooses its batches itself; leave --sweep out")
    if stored:
        curve = sweeps.stored(settings, probe, device)
    else:
        with _bench(settings, probe, device) as bench:
            curve = _measured_curve(bench, probe)
        sweeps.keep(settings, curve)
    click.echo(json.dumps(curve.document()) if as_json else sweeps.shown(curve))


def _measured_curve(bench: Bench, probe: ProbeConfig) -> sweeps.Curve:
    """Searches the batch, and then measures every batch of the search in full."""
    alone = {"keep_alive": True, "batch": "auto", "energy": False}
    found = bench.run(probe.model_copy(update=alone), search_anew=True)
    peaks = {int(point["batch"]): int(point["peak_memory_bytes"]) for point in found.curve}
    reports = [
        bench.measured(probe.model_copy(update={"keep_alive": True, "batch": batch}))
        for batch in sorted(peaks or {found.result.batch: 0})
    ]
    return sweeps.curve_of(reports, peaks, probe, bench.tags)


class Bench:
    """One device or server with sensors and books of its own, for as long as a command runs.

    Attributes:
        bar: Shows where a run is.
        tags: Host and static labels.
    """

    def __init__(
        self, measurer: Measurer, accounts: Accounts, target: Target, tags: dict[str, str]
    ) -> None:
        self.bar = ProgressBar()
        self.tags = tags
        self._measurer = measurer
        self._accounts = accounts
        self._target = target

    def run(self, probe: AnyProbe, *, search_anew: bool = False) -> Measured:
        """What a run measured.

        Raises:
            click.ClickException: It came to nothing.
        """
        outcome = self._measurer.run(
            probe,
            self._target,
            energy=probe.carries_energy,
            on_progress=lambda at: self.bar.show(f"{self._target.name} {probe.name}", at),
            search_anew=search_anew,
        )
        if isinstance(outcome, ProbeFault):
            words = "\n".join(("", *outcome.last_words))
            raise click.ClickException(
                f"{probe.name} on {self._target.name}: {outcome.title}{words}"
            )
        return outcome

    def measured(self, probe: AnyProbe) -> ProbeReport:
        """What a run came to, priced."""
        return self._accounts.take_probe(self.run(probe))


@contextmanager
def _bench(settings: Settings, probe: AnyProbe, device: str | None) -> Iterator[Bench]:
    stop = SignalFlag()

    def on_signal(number: int, frame: FrameType | None) -> None:
        del number, frame
        stop.set()

    signal.signal(signal.SIGINT, on_signal)
    signal.signal(signal.SIGTERM, on_signal)
    config = settings.config
    with short_lived_sensor(config.telemetry) as sensor:
        devices = sensor.devices()
        target = _target(devices, probe, device)
        ledger, clock = MemoryLedger(), SystemClock()
        book = book_of(settings, devices)
        tags = {"host": host_name(config), **config.host.labels}
        carbon = carbon_of(settings, devices)
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
    name = name or BUILT_IN[0]
    if name in configured:
        return configured[name]
    if name in BUILT_IN:
        return ProbeConfig.model_validate({"name": name, "kind": name})
    known = ", ".join(dict.fromkeys([*configured, *BUILT_IN]))
    raise bad_input(f"no probe {name!r}; there are: {known}")


def _target(devices: Sequence[Device], probe: AnyProbe, name: str | None) -> Target:
    if name is None:
        wanted = targets(probe, devices)
        if not wanted:
            raise click.ClickException("no device was found; infercost doctor says why")
        return wanted[0]
    for device in devices:
        if name in (device.name, device.uuid):
            return Target((device,))
    known = ", ".join(device.name for device in devices) or "none"
    raise bad_input(f"no device {name!r}; there are: {known}")
