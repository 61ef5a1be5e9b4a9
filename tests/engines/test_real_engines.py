"""Real serving engines: what costprobe reads of them against a client's own count. `make soak` runs it."""

import json
import signal

import pytest
from costprobe.core.clock import SystemClock
from engines import soak
from engines.environment import running
from engines.run_kserve import KServe
from engines.run_litellm import LiteLlm
from engines.run_llamacpp import LlamaCpp
from engines.run_mlserver import MlServer
from engines.run_torchserve import TorchServe
from engines.run_transformers import TransformersServe
from engines.run_triton import Triton
from engines.run_vllm import Vllm
from fakes.daemon import DaemonProcess
from fakes.nvml import FakeNvml

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]
# In the order in which they are run.
ENGINES = (LlamaCpp, Vllm, LiteLlm, TorchServe, MlServer, KServe, Triton, TransformersServe)
# Client and probe measure the same calls; the machine's load may change between them.
TIMES_APART = 2.0
PROBED = 32


@pytest.fixture(scope="module", params=ENGINES, ids=lambda engine: engine.name)
def engine(request, tmp_path_factory):
    """An engine; its server is started by the test."""
    engine = request.param(tmp_path_factory.mktemp(request.param.name))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def process(engine):
    with running(engine, engine.folder) as process:
        engine.warm_up()
        yield process


@pytest.fixture
def counting(engine):
    """The engine, if it exposes counters."""
    if not engine.preset:
        pytest.skip(f"{engine.name} exposes no counters")
    return engine


@pytest.fixture
def daemon(counting, process, tmp_path):
    fake = FakeNvml(tmp_path, gpus=1)
    fake.gpus[0].set_power(300.0)
    daemon = DaemonProcess(tmp_path, fake.env())
    daemon.start(soak.service_table(counting))
    try:
        yield daemon
    finally:
        daemon.stop()


def test_windows_count_what_the_client_sent(engine, process, daemon, figures):
    windows = soak.Windows(daemon)
    before = windows.settle()
    tally = engine.load()
    counted = soak.difference(windows.settle(), before)
    found = soak.deviations(counted, engine.expected(tally))
    # The engine is away for several readings; what it counted before is not counted again.
    process.stop(signal.SIGKILL)
    daemon.wait_for(lambda: not windows.all()[-1].fields["complete"])
    process.start()
    back = windows.settle()
    restarted = soak.difference(back, before)
    after = engine.load()
    again = soak.difference(windows.settle(), back)
    found += soak.deviations(again, engine.expected(after))
    figures(
        f"{engine.name}: windows",
        engine=engine.version(),
        client=(tally + after).counts(),
        counted={name: counted[name] + again[name] for name in counted},
        incomplete=sum(not row.fields["complete"] for row in windows.all()),
    )
    assert restarted == counted, "counts were invented while the engine was away"
    assert not found


def test_restart_between_two_readings_invents_no_counts(counting, process, figures):
    engine = counting
    meter = soak.meter_of(engine, SystemClock())
    meter.scrape()
    engine.load()
    # Its counters are as high as before, or higher: only a start time shows the restart.
    higher, kept = soak.after_restart(engine, process, meter, engine.load)
    # They are lower.
    lower, few = soak.after_restart(engine, process, meter)
    counts = [soak.counts_of(window) for window in (higher, lower)]
    figures(
        f"{engine.name}: restart between readings",
        client=[kept.counts(), few.counts()],
        counted=counts,
        restarts=[higher.restarts, lower.restarts],
    )
    assert lower.restarts == 1, lower
    assert not soak.deviations(counts[1], engine.expected(few))
    if engine.shows_start:
        assert higher.restarts == 1, higher
        assert not soak.deviations(counts[0], engine.expected(kept))
    for measure, (_, most) in engine.expected(kept).items():
        assert counts[0].get(measure, 0) <= most, measure


def test_probe_measures_what_the_client_measures(engine, process, tmp_path, figures):
    if engine.probe() is None:
        pytest.skip(f"{engine.name} has no API that costprobe probes")
    meter = soak.meter_of(engine, SystemClock()) if engine.preset else None
    _, before_ms = soak.timings(engine)
    prober = DaemonProcess(tmp_path, {})
    prober.write(soak.probe_table(engine))
    if meter:
        meter.scrape()
    report = json.loads(prober.run("probe", "real", "--json"))
    counted = soak.counts_of(meter.close_window()) if meter else {}
    _, after_ms = soak.timings(engine)
    probe_ms = report["latency_p50_ms"]
    figures(
        f"{engine.name}: probe",
        engine=engine.version(),
        client_ms=[before_ms, after_ms],
        probe_ms=probe_ms,
        sent=report["fields"]["requests"],
        counted=counted,
        samples=report["samples"],
    )
    assert report["samples"] >= PROBED, report
    low_ms, high_ms = sorted((before_ms, after_ms))
    assert low_ms / TIMES_APART <= probe_ms <= high_ms * TIMES_APART
