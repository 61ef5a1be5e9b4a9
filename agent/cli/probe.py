"""`infercost probe`: one probe now, without a daemon; nothing is stored."""

from __future__ import annotations

import json
import os
import signal
from threading import Event
from types import FrameType

import click

from agent.cli.discovery import short_lived_sensor
from agent.cli.lines import probe_line
from agent.cli.progress import ProgressBar
from agent.cli.settings import Settings, bad_input
from agent.clock import SystemClock
from agent.config import Config, ProbeConfig
from agent.daemon.accounts import Accounts, MemoryLedger
from agent.daemon.measuring import Measurer
from agent.daemon.running import host_name, probed_devices
from agent.daemon.status import report_document
from agent.model import Device
from agent.pricing.book import PriceBook
from agent.probing.outcome import ProbeFault

_BUILT_IN = ("transformer", "cnn")


@click.command()
@click.argument("name", required=False)
@click.option("--device", help="On this device only (default: the first).")
@click.option("--json", "as_json", is_flag=True, help="The whole result, as JSON.")
@click.pass_obj
def command(config: str | None, *, name: str | None, device: str | None, as_json: bool) -> None:
    """Runs the probe NAME once: a configured one, or the built-in "transformer" or "cnn"."""
    settings = Settings(config)
    probe = _chosen(settings.config, name)
    stop = Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        del number, frame
        stop.set()

    signal.signal(signal.SIGINT, on_signal)
    signal.signal(signal.SIGTERM, on_signal)
    with short_lived_sensor(settings.config.telemetry) as sensor:
        chosen = _device(sensor.devices(), probe, device)
        ledger, clock = MemoryLedger(), SystemClock()
        book = PriceBook(
            settings.config.price,
            settings.config.electricity,
            sensor.devices(),
            os.cpu_count() or 1,
        )
        tags = {"host": host_name(settings.config), **settings.config.host.labels}
        accounts = Accounts(book, ledger, clock, tags, lambda *_: ())
        measurer = Measurer(sensor, ledger, settings.store_path.parent, stop)
        bar = ProgressBar()
        try:
            outcome = measurer.run(
                probe,
                chosen,
                energy=probe.energy,
                on_progress=lambda progress: bar.show(f"{chosen.name} {probe.name}", progress),
            )
        finally:
            measurer.close()
    if isinstance(outcome, ProbeFault):
        words = "\n".join(("", *outcome.last_words))
        raise click.ClickException(f"{probe.name} on {chosen.name}: {outcome.title}{words}")
    document = report_document(accounts.take_probe(outcome))
    bar.line(json.dumps(document) if as_json else probe_line(document))


def _chosen(config: Config, name: str | None) -> ProbeConfig:
    configured = {probe.name: probe for probe in config.probe}
    if name is None and configured:
        return next(iter(configured.values()))
    name = name or _BUILT_IN[0]
    if name in configured:
        return configured[name]
    if name in _BUILT_IN:
        return ProbeConfig.model_validate({"name": name, "kind": name})
    known = ", ".join([*configured, *_BUILT_IN])
    raise bad_input(f"no probe {name!r}; there are: {known}")


def _device(devices: tuple[Device, ...], probe: ProbeConfig, name: str | None) -> Device:
    if name is None:
        wanted = probed_devices(probe, devices)
        if not wanted:
            raise click.ClickException("no device was found; infercost doctor says why")
        return wanted[0]
    for device in devices:
        if name in (device.name, device.uuid):
            return device
    known = ", ".join(device.name for device in devices) or "none"
    raise bad_input(f"no device {name!r}; there are: {known}")
