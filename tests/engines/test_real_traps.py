"""What was found with real engines and is read, or refused, as the documentation says. `make soak` runs it."""

import json

import pytest
from costprobe.core.clock import SystemClock
from engines import soak
from engines.environment import running
from engines.run_kserve import KServe
from engines.run_triton import CACHED, Triton
from fakes.daemon import DaemonProcess
from fakes.servers import get

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]
READINGS = 30
STARTED = "process_start_time_seconds "


class TwoWorkers(KServe):
    """Two processes on one port: each reading shows the counters of one of them."""

    workers = 2


class CachingTriton(Triton):
    """It answers a repeated request from its response cache."""

    more_config = CACHED


def workers_seen(engine):
    """The start times of the processes that answered some readings."""
    pages = [get(engine.metrics_url).decode() for _ in range(READINGS)]
    return {x for page in pages for x in page.splitlines() if x.startswith(STARTED)}


def test_workers_on_one_port_are_refused(tmp_path, figures, wait_until):
    engine = TwoWorkers(tmp_path)
    with running(engine, tmp_path):
        wait_until(lambda: len(workers_seen(engine)) == engine.workers)
        meter = soak.meter_of(engine, SystemClock())
        engine.load()
        meter.scrape()
        windows = []
        for _ in range(READINGS):
            meter.scrape()
            windows.append(meter.close_window())
    refused = [window for window in windows if window.problems]
    invented = sum(
        soak.counts_of(window).get("requests", 0) for window in windows if not window.problems
    )
    figures("kserve: two workers", windows=len(windows), refused=len(refused), invented=invented)
    # Nothing was sent; at first all readings may show one process.
    assert refused
    assert invented == 0


def test_probe_of_a_response_cache_is_marked(tmp_path, figures):
    engine = CachingTriton(tmp_path)
    prober = DaemonProcess(tmp_path, {})
    prober.write(soak.probe_table(engine))
    with running(engine, tmp_path):
        meter = soak.meter_of(engine, SystemClock())
        engine.warm_up()
        meter.scrape()
        report = json.loads(prober.run("probe", "real", "--json"))
        counted = soak.counts_of(meter.close_window())
    figures(
        "triton: probe of a response cache",
        probe_ms=report["latency_p50_ms"],
        cached=report["fields"]["cached"],
        counted=counted,
    )
    assert report["fields"]["cached"] is True
    assert counted["requests"] >= report["samples"]
    assert counted["inferences"] <= 1
