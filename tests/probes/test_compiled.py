"""Compiled models, whose kernels are the same in a search and in every later run; CUDA graphs."""

import time
from contextlib import contextmanager
from functools import partial

import pytest
from costprobe_probes.host_memory import HostMemory
from costprobe_probes.wire import ProbeConfigError, is_too_large, kind_of
from fakes.inference_server import Notes
from fakes.lazy import LazyModule

torch = LazyModule("torch")
models = LazyModule("costprobe_probes.model")
model_run = LazyModule("costprobe_probes.model_run")
probe_device = LazyModule("costprobe_probes.device")

# More than the eight shapes after which torch stops to compile a function anew.
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 192)


class Compiler:
    """torch.compile with a backend that notes the shapes of each graph and compiles no kernels."""

    def __init__(self):
        self.graphs = []

    def __call__(self, module, **options):
        return torch.compile(module, backend=self._backend, **options)

    def _backend(self, graph, examples):
        self.graphs.append([tuple(x.shape) for x in examples if isinstance(x, torch.Tensor)][-1])
        self.graphs[-1] += tuple(x for x in examples if not isinstance(x, torch.Tensor))
        return graph.forward


def test_each_batch_has_kernels_of_its_own_static_shape():
    compiler = Compiler()
    module = models.CompiledModule(torch.nn.GELU(), compiler)
    for batch in BATCHES:
        for _ in range(2):
            module.for_batch(batch)(torch.ones(batch, 3))
    assert compiler.graphs == [(batch, 3) for batch in BATCHES]
    assert all(type(size) is int for shape in compiler.graphs for size in shape)


def test_model_that_cannot_be_compiled_is_rejected_with_the_fix():
    """With the compiler of the host in `make soak`."""

    def backend(graph, examples):
        raise OSError("no working C++ compiler")

    module = models.CompiledModule(torch.nn.GELU(), partial(torch.compile, backend=backend))
    loaded = models.LoadedModel(workload(), {}, module)
    words = r"torch\.compile failed[\s\S]*no working C\+\+ compiler[\s\S]*remove compile"
    with pytest.raises(ProbeConfigError, match=words):
        models.forward_pass(equal_passes(), loaded, 2, {"compile": True})


class SlowToCompile:
    """A compiled module whose kernels take long to compile, and whose passes are equally fast."""

    def __init__(self, compile_s):
        self._compile_s = compile_s
        self._batch = None

    def for_batch(self, batch):
        if batch != self._batch:
            time.sleep(self._compile_s)
        self._batch = batch
        return torch.nn.Identity()


def equal_passes():
    """A processor on which each pass takes a millisecond of device time."""

    class EqualPasses(probe_device.CpuDevice):
        def time_block(self, run, runs, before=None, watch=None):  # noqa: ARG002 - the contract's
            run()
            return [1.0] * runs

        def headroom_bytes(self):
            return 1 << 60

    return EqualPasses(HostMemory())


def outcome_of(loaded, **request):
    """The result of a run of a model on equal passes, and the batches that it tried."""
    base = {"batch": "auto", "min_samples": 5, "sample_cap_s": 0.0, "deadline_s": 0.76}
    notes = Notes()
    request = {**base, "energy": False, **request}
    model_run.ModelProbeRun(notes, request, equal_passes(), loaded, time.monotonic()).run()
    (result,) = notes.of("result")
    return result, [point["batch"] for point in notes.of("batch_point")]


def workload(**batches):
    inputs = models.Inputs
    identity = torch.nn.Identity()
    return models.SourcedModel(
        identity, lambda batch: inputs((torch.ones(batch, 2),), {}), **batches
    )


def test_compilation_does_not_count_against_the_time_of_a_search():
    loaded = models.LoadedModel(workload(max_batch=8), {}, SlowToCompile(0.2))
    result, tried = outcome_of(loaded, compile=True)
    assert (result["batch"], tried) == (8, [1, 2, 4, 8])
    assert result["software"]["compile_shapes"] == "static"


def test_batches_of_a_program_are_those_that_it_was_exported_for():
    dynamic = models.LoadedModel(workload(min_batch=2, max_batch=4), {}, None)
    assert outcome_of(dynamic)[1][0] == 2
    static = models.LoadedModel(workload(min_batch=4, max_batch=4), {}, None)
    result, tried = outcome_of(static)
    assert (result["batch"], tried) == (4, [])
    for loaded, batch, words in ((static, 8, "4 to 4"), (dynamic, 1, "2 to 4")):
        with pytest.raises(ProbeConfigError, match=f"exported for {words}"):
            outcome_of(loaded, batch=batch)


def test_cuda_graph_needs_a_gpu():
    with pytest.raises(ProbeConfigError, match="needs a GPU"):
        outcome_of(models.LoadedModel(workload(), {}, None), batch=1, cuda_graph=True)


class FailingCapture:
    """In place of torch.cuda: a pass fails while it is captured, and so does the capture's end."""

    CUDAGraph = object

    def __init__(self, first):
        self.torch_device = torch.device("cuda")
        self._first = first
        self._is_capturing = False

    def synchronize(self):
        """There is no work."""

    @contextmanager
    def graph(self, _):
        self._is_capturing = True
        try:
            yield
        finally:
            raise RuntimeError(
                "CUDA error: operation failed due to a previous error during capture"
            )

    def run(self):
        if self._is_capturing and self._first:
            raise RuntimeError(self._first)


def test_failed_capture_is_not_reported_as_exhausted_memory():
    # torch replaces the first error by that of the capture's end; the allocator may hide it.
    for first, kind in (
        ("CUDA out of memory. Tried to allocate 2.00 GiB.", "oom"),
        ("GET was unable to find an engine to execute this computation", "oom"),
        ("CUDA error: operation not permitted when stream is capturing", "config"),
        ("", "config"),
    ):
        failing = FailingCapture(first)
        with pytest.raises(Exception) as raised:  # noqa: PT011 - its kind is what is tested
            models.capture(failing, failing.run, failing)
        assert kind_of(raised.value) == kind, first
        # A smaller batch was captured: this one is too large.
        assert is_too_large(raised.value), first
