"""What common mistakes of timing report beside the measured latency."""

from types import SimpleNamespace

import pytest
from costprobe.adapters.probe_child.results import MISTAKES, NaiveTiming, read_result
from fakes.command import called
from fakes.documents import checked
from fakes.lazy import LazyModule
from fakes.probe_requests import probe_request
from fakes.runs import RESULT
from fakes.scenes import WORKER
from record.record_files import check_outcomes

torch = LazyModule("torch")
probes_naive = LazyModule("costprobe_probes.naive")
probe_inputs = LazyModule("costprobe_probes.sources.model_source")
probe_device = LazyModule("costprobe_probes.device")
model_runs = LazyModule("costprobe_probes.model_run")
models = LazyModule("costprobe_probes.model")
QUICK = {"dtype": "fp32", "batch": 4, "min_samples": 70, "sample_cap_s": 0.4, "threads": 1}


class ScriptedGpu:
    """A device with its own clock: a call only queues a pass, and a synchronize waits for the queue.

    Launching takes 0.01 ms, a pass 4 ms (the first of all 100 ms), a copy 6 ms, a synchronize 0.5 ms.
    """

    def __init__(self):
        self.torch_device = torch.device("cuda", 0)
        self.now_ns, self.queued_ns, self.passes = 0, 0, 0

    def run(self):
        self.now_ns += 10_000
        self.queued_ns += 4_000_000 if self.passes else 100_000_000
        self.passes += 1

    def to(self, device, *, copy):
        """A copy of an input, which is this object, too."""
        assert (device, copy) == (self.torch_device, True)
        self.queued_ns += 6_000_000

    def synchronize(self):
        self.now_ns += self.queued_ns + 500_000
        self.queued_ns = 0

    def time_block(self, run, runs, before=None, watch=None):  # noqa: ARG002 - the contract's
        latencies_ms = []
        for _ in range(runs):
            (before or (lambda: None))()
            queued_ns = self.queued_ns
            run()
            latencies_ms.append((self.queued_ns - queued_ns) / 1e6)
        self.synchronize()
        return latencies_ms


def test_each_mistake_on_a_gpu_has_the_latency_that_it_causes():
    gpu = ScriptedGpu()
    naive = probes_naive.NaiveTimings(gpu, clock=lambda: gpu.now_ns)
    naive.time_first(gpu.run)
    naive.time_warm(gpu.run, probe_inputs.Inputs((gpu,), {}), 4.0)

    def pass_over(items):
        assert items == 1
        return gpu.run

    naive.time_batch_1(pass_over, batch=8, min_batch=1)
    found = {timing["mistake"]: timing["latency_ms"] for timing in naive.found}
    check_outcomes("naive_gpu.json", found.get)
    assert set(found) == set(MISTAKES)
    assert all(timing["samples"] >= 3 for timing in naive.found[3:])
    assert {timing["not_applicable"] for timing in naive.found} == {""}


def test_first_pass_of_a_model_is_timed_before_its_warm_up():
    clock = SimpleNamespace(now_ms=0.0)

    class SlowAtFirst(torch.nn.Module):
        passes = 0

        def forward(self, x):
            clock.now_ms += (200.0 if self.passes == 0 else 1.0) + len(x)
            self.passes += 1
            return torch.relu(x)

    class Clocked(probe_device.CpuDevice):
        def time_block(self, run, runs, before=None, watch=None):  # noqa: ARG002 - the contract's
            assert before is None
            latencies_ms = []
            for _ in range(runs):
                start_ms = clock.now_ms
                run()
                latencies_ms.append(clock.now_ms - start_ms)
            return latencies_ms

    reports = []
    wire = SimpleNamespace(
        progress=lambda *_: None, report=lambda kind, **fields: reports.append((kind, fields))
    )
    workload = models.SourcedModel(
        SlowAtFirst(), lambda batch: probe_inputs.Inputs((torch.ones(batch, 2),), {})
    )
    request = probe_request("module", **QUICK, naive=True).document
    loaded = models.LoadedModel(workload, {})
    model_runs.ModelProbeRun(wire, request, Clocked(None), loaded, 0.0).run()
    ((_, result),) = reports
    found = {timing["mistake"]: timing["latency_ms"] for timing in result["naive"]}
    assert result["latency_ms"]["p50"] == 5.0
    check_outcomes("naive_first.json", found.get)
    assert set(found) == set(MISTAKES)


def test_batch_1_is_not_measured_for_a_program_of_larger_batches():
    naive = probes_naive.NaiveTimings(ScriptedGpu())
    naive.time_batch_1(pytest.fail, batch=8, min_batch=4)
    assert "no batch below 4" in naive.found[0]["not_applicable"]


def test_invalid_reports_of_mistakes_are_rejected():
    timing = {"mistake": "one_sample", "latency_ms": 1.0, "samples": 1, "not_applicable": ""}
    known = read_result({**RESULT, "naive": [timing, timing]}, probe="p", device="cpu")
    assert known.naive == (NaiveTiming("one_sample", 1.0, 1),)
    wrong = (3, [3], [{}], *([{**timing, "latency_ms": x}] for x in (-1.0, "x", float("nan"))))
    for timings in wrong:
        with pytest.raises(ValueError, match=r"."):
            read_result({**RESULT, "naive": timings}, probe="p", device="cpu")


@pytest.mark.processes
def test_command_shows_each_mistake_with_its_error(tmp_path):
    config = tmp_path / "costprobe.toml"
    config.write_text(
        f'[store]\npath = "{tmp_path}/costprobe.db"\n[telemetry]\nevery = "50ms"\n'
        f'[[probe]]\nname = "ranker"\nkind = "cnn"\npython = "{WORKER}"\nkeep_alive = true\n'
        '[[probe]]\nname = "chat"\nkind = "openai"\nmodel = "m"\nurl = "http://127.0.0.1:9"\n'
    )
    # The batch is searched by one process, and the mistakes are measured by another.
    shown = called(config, "probe", "ranker", "--naive", "--device", "cpu").stdout
    rows = {line.split("  ")[0]: line.split() for line in shown.splitlines()}
    assert rows["costprobe: median"][-3:] == ["300", "2", "-"], shown
    assert rows[MISTAKES["batch_1"]][-4:] == ["9", "8", "+300.0", "%"], shown
    assert rows[MISTAKES["one_sample"]][-4:] == ["9", "1.8", "-10.0", "%"], shown
    assert f"{MISTAKES['no_synchronize']}: not applicable on the CPU" in shown
    assert max(len(line) for line in shown.splitlines() if "not applicable" not in line) <= 80
    words = ("probe", "ranker", "--naive", "--device", "cpu", "--json")
    document = checked("probe", called(config, *words).stdout)
    assert (document["batch"], document["latency_p50_ms"]) == (4, 2.0)
    errors = {each["mistake"]: each["error_pct"] for each in document["mistakes"]}
    assert errors == pytest.approx(
        {"no_synchronize": None, "first_pass": 2500.0, "one_sample": -10.0, "batch_1": 300.0}
    )
    for words, error in (
        (("chat", "--naive"), "not requests to a server"),
        (("ranker", "--naive", "--sweep"), "--naive and --sweep are different measurements"),
        (("ranker", "--naive", "--cold-start"), "keep one"),
    ):
        assert error in called(config, "probe", *words, code=2).output, words
