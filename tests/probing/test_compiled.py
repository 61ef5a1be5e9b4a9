"""Compiled models: the kernels of a batch are the same in a search and in every later run."""

import time

import torch
from costprobe_probes.compiled import CompiledModule
from costprobe_probes.device import CpuDevice
from costprobe_probes.hostmemory import HostMemory
from costprobe_probes.inputs import Inputs
from costprobe_probes.model_run import LoadedModel, ModelProbeRun
from costprobe_probes.workload import Workload
from fakes.inference_server import Notes

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
    compiled = CompiledModule(torch.nn.GELU(), compiler)
    for batch in BATCHES:
        for _ in range(2):
            compiled.for_batch(batch)(torch.ones(batch, 3))
    assert compiler.graphs == [(batch, 3) for batch in BATCHES]
    assert all(type(size) is int for shape in compiler.graphs for size in shape)


class SlowToCompile:
    """A compiled module whose kernels take long to compile, and whose passes are equally fast."""

    def __init__(self, compile_s):
        self._compile_s = compile_s
        self._batch = None

    def for_batch(self, batch):
        if batch != self._batch:
            time.sleep(self._compile_s)
        self._batch = batch
        return Equal()


class Equal(torch.nn.Module):
    def forward(self, x):
        return x


class EqualPasses(CpuDevice):
    """A processor on which each pass takes a millisecond of device time."""

    def time_block(self, run, runs, before=None):  # noqa: ARG002 - the contract's
        run()
        return [1.0] * runs

    def headroom_bytes(self):
        return 1 << 60


def test_compilation_does_not_count_against_the_time_of_a_search():
    request = {
        "probe": "p",
        "batch": "auto",
        "max_batch": 8,
        "compile": True,
        "min_samples": 5,
        "sample_cap_s": 0.0,
        "energy": False,
        "torch_device": "cpu",
    }
    workload = Workload(Equal(), lambda batch: Inputs((torch.ones(batch, 2),), {}))
    notes = Notes()
    loaded = LoadedModel(workload, {}, SlowToCompile(0.2))
    device = EqualPasses(HostMemory())
    ModelProbeRun(notes, request, device, loaded, time.monotonic(), search_cap_s=0.19).run()
    (result,) = notes.of("result")
    assert result["batch"] == 8
    assert result["software"]["compile_shapes"] == "static"
    assert [point["batch"] for point in notes.of("batch_point")] == [1, 2, 4, 8]
