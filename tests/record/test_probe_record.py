"""Probe runs: the lines of the child and the readings of the sensors, until rows and output."""

import json
import threading
from contextlib import closing
from pathlib import Path

import pytest
from costprobe.adapters.host.host_name import host_tags
from costprobe.adapters.sensors.messages import Activity
from costprobe.adapters.store.ledger import RowLabels, StoreLedger
from costprobe.adapters.store.write import Store
from costprobe.configuration import parse
from costprobe.core.records import NS_PER_S, Device, Energy
from costprobe.devices.use import ProbeRuns
from costprobe.pricing.book import PriceBook
from costprobe.pricing.electricity import CarbonBook
from costprobe.pricing.prices import RememberedPrices
from costprobe.probing.jobs import ProbeAccounts, StoredHistory
from costprobe.probing.rows import report_document
from costprobe.probing.run import Measurer, ProbeTarget, model_request, served_request
from costprobe.ui.cli.probe import NaiveReport
from costprobe.ui.cli.support.output import echo_json, echo_lines
from costprobe.ui.cli.views.status_lines import probe_line
from fakes.clock import FakeClock
from record_files import INPUTS, check, documents, input_text, rows

GPU = Device("gpu0", "gpu", "GPU-0", "NVIDIA H100 80GB HBM3")
# 2026-06-01 23:59 UTC: the price changes between the first run and the second.
START_NS = 1_780_358_340 * NS_PER_S
READINGS = json.loads(input_text("probe_readings.json"))


def lines_of(name, after_s, **changes):
    """Return the recorded lines of a child, moved to a later time, with changes of its result."""
    *lines, last = (INPUTS / f"probe_{name}.jsonl").read_text().splitlines()
    result = {**json.loads(last), **changes}
    for key, value in result.items():
        if key.endswith("_ns"):
            result[key] = value + after_s * NS_PER_S
    return "\n".join([*lines, json.dumps(result), ""])


class Sensor:
    """Answers with recorded messages, and keeps what was asked."""

    def __init__(self):
        self.asked = []

    def watch(self, *asked):
        self.asked.append(["watch", *asked])
        return True

    def mark(self, *asked):
        self.asked.append(["mark", *asked])
        return True

    def energy(self, *asked, timeout_s):
        self.asked.append(["energy", *asked, timeout_s])
        return Energy(**READINGS["energy"])

    def activity(self, *asked, own_pids, timeout_s):
        self.asked.append(["activity", *asked, 4242 in own_pids, timeout_s])
        return Activity(**READINGS["activity"])


@pytest.fixture
def worker(tmp_path):
    """A worker that writes the lines of a file."""
    file = tmp_path / "worker"
    file.write_text(f"#!/bin/sh\ncat {tmp_path}/lines\nexec cat > /dev/null\n")
    file.chmod(0o755)
    return file


def test_probe_runs(tmp_path, worker, capsys, monkeypatch):
    command = "costprobe.probing.run.LOAD_COMMAND"
    monkeypatch.setattr(command, (str(worker),))
    config = parse(input_text("probe.toml", python=worker), Path("costprobe.toml"))
    clock, sensor, stop = FakeClock(START_NS), Sensor(), threading.Event()
    progress, reports, printed = [], [], []
    with closing(Store.open(tmp_path / "costprobe.db", clock)) as store:
        ledger = StoreLedger(store)
        ledger.label_with(RowLabels(config.probe, config.service))
        book = PriceBook(config.price, config.electricity, [GPU])
        carbon = CarbonBook(config.carbon, config.electricity, [GPU])
        history = StoredHistory(store.path, clock).costs
        prices = RememberedPrices(book, ledger, clock, carbon)
        accounts = ProbeAccounts(prices, ledger, clock, host_tags(config.host), history)
        runs = ProbeRuns()
        measurer = Measurer(sensor, ledger, tmp_path, stop, clock.monotonic_ns, runs)
        encoder, chat = config.probe
        later = READINGS["later"]
        without = {"has_energy_window": False, "inferences": 8800, "outliers": None}
        changed = (
            (encoder, {}),
            (chat, {}),
            (encoder, later),
            (encoder, {**later, **without}),
            (chat, {"inferences": 5.5, "fingerprint": "78"}),
        )
        for number, (probe, changes) in enumerate(changed):
            (tmp_path / "lines").write_text(lines_of(probe.name, 300 * number, **changes))
            target = ProbeTarget((GPU,))
            run = measurer.run(
                probe, target, energy=probe.carries_energy, on_progress=progress.append
            )
            report = accounts.take_probe(run)
            reports.append(report_document(report))
            echo_json(reports[-1])
            echo_lines([probe_line(reports[-1])])
            if run.naive:
                naive = NaiveReport(run, clock.time_ns())
                echo_json(naive.document())
                echo_lines(naive.lines())
            printed.append(capsys.readouterr().out)
            clock.move(300)
        measurer.close()
    requests = [
        json.loads(request.to_wire())
        for request in (
            model_request(encoder, GPU, {}, energy=True),
            model_request(encoder, GPU, {"batch": 8, "fingerprint": "f"}, energy=False, naive=True),
            served_request(chat, energy=True),
        )
    ]
    asked = [[each.phase, each.done, each.note] for each in progress]
    check("probe_requests.json", [*requests, *sensor.asked, *asked], [(worker, "/worker")])
    check("probe_rows.txt", rows(store.path))
    check("probe_documents.json", documents(store.path))
    check("probe_printed.txt", "\n".join(printed))
