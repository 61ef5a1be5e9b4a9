"""A model on its device: inputs at any batch size, forward passes by mode, identity, memory need.

The model is in evaluation mode. torch.compile compiles it for the shapes of one batch at a time;
a CUDA graph of a pass is captured once and replayed in one launch.

What identifies a measurement are software versions, device, model and weights. The memory that a
model needs at least is compared with what is free before it is taken.
"""

from __future__ import annotations

import hashlib
import platform
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, Optional

import torch
from torch import nn

from costprobe_probes.device import GIB, TorchDevice
from costprobe_probes.pass_work import PassWork, count_pass
from costprobe_probes.processor import processor_name
from costprobe_probes.sources.files import digest_of
from costprobe_probes.sources.kinds import source_of
from costprobe_probes.sources.model_source import FLOATS, Inputs, SourcedModel, checked_inputs
from costprobe_probes.stats import DEFINITION
from costprobe_probes.wire import CaptureError, ProbeConfigError, Spec, describe, kind_of

# Part of the fingerprint: kernels for any batch and kernels for one batch differ in speed.
SHAPES = "static"


class CompiledModule:
    """Compiles a module anew for each batch, with static shapes.

    Left to itself torch.compile makes kernels for the first batch, and for any batch as soon as it
    sees a second one: a search would measure other kernels than a later run of the batch it found.
    It also stops compiling after eight shapes (torch._dynamo.config.recompile_limit).

    Args:
        module: The module, on its device.
        compiler: As torch.compile.
    """

    def __init__(self, module: nn.Module, compiler: Callable[..., Any] = torch.compile) -> None:
        self._module = module
        self._compiler = compiler
        self._batch: int | None = None
        self._compiled: Any = None

    def for_batch(self, batch: int) -> nn.Module:
        """Return the module that compiles for a batch at its first pass; the same for the same batch."""
        if batch != self._batch:
            _forget_kernels()
            self._compiled, self._batch = self._compiler(self._module, dynamic=False), batch
        compiled: nn.Module = self._compiled
        return compiled


def _forget_kernels() -> None:
    # torch.compiler is newer than torch 2.0.
    compiler: Any = getattr(torch, "compiler", None) or torch._dynamo  # noqa: SLF001 - its only name there
    compiler.reset()


def load(spec: Spec, seed: int) -> SourcedModel:
    """Load a model and its inputs, on the host.

    Args:
        spec: The model and its inputs.
        seed: Seed of torch's generator, for weights and inputs.

    Raises:
        ProbeConfigError: No such model or factory, or it cannot be loaded.
    """
    dtype = None if spec.dtype is None else FLOATS[spec.dtype]
    torch.manual_seed(seed)
    sourced = source_of(spec.kind)(spec)
    if sourced.move is None:
        # A torch.export program has no training mode, and its eval() raises.
        sourced.module.eval()
    if dtype is not None:
        sourced.module.to(dtype)

    def inputs(batch: int) -> Inputs:
        torch.manual_seed(seed)
        found = checked_inputs(spec.name, sourced.inputs(batch))
        return found.map(
            lambda x: x.to(dtype) if dtype is not None and x.is_floating_point() else x
        )

    inputs(sourced.min_batch)
    return sourced._replace(inputs=inputs)


DRIVER_VERSION_FILE = "/proc/driver/nvidia/version"
AMD_VERSION_FILE = "/sys/module/amdgpu/version"
CPUINFO_FILE = "/proc/cpuinfo"
LENGTH = 12
HEAD_CHARS = 4096
# /proc/cpuinfo of a thousand cores, which may be of several types.
CPUINFO_CHARS = 1 << 20
_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def software(
    device: torch.device,
    driver_file: str = DRIVER_VERSION_FILE,
    cpuinfo_file: str = CPUINFO_FILE,
    amd_file: str = AMD_VERSION_FILE,
) -> dict[str, str]:
    """Return the versions of all software that a forward pass uses, and the name of the device.

    Args:
        device: The device under test.
        driver_file: File in which the NVIDIA kernel driver reports its version.
        cpuinfo_file: File in which the kernel names the processor.
        amd_file: File in which AMD's kernel driver reports its version, if it is not Linux's own.
    """
    versions = {
        "torch": torch.__version__,
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }
    versions["matmul_precision"] = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        hip = torch.version.hip
        versions["cuda"] = str(torch.version.cuda) if hip is None else f"HIP {hip}"
        versions["cudnn_benchmark"] = str(torch.backends.cudnn.benchmark)
        versions["cudnn_deterministic"] = str(torch.backends.cudnn.deterministic)
        versions["allow_tf32"] = str(torch.backends.cuda.matmul.allow_tf32)
        versions["cudnn"] = str(torch.backends.cudnn.version())  # type: ignore[no-untyped-call] # torch does not type it
        versions["device_name"] = torch.cuda.get_device_name(device)
        if hip is not None:
            own = _head(amd_file).strip()
            versions["driver"] = own or f"Linux {platform.release()}"
        elif driver := re.search(r"(\d{3,}\.\d+(?:\.\d+)?)", _head(driver_file)):
            versions["driver"] = driver[1]
    else:
        versions["device_name"] = processor_name(_head(cpuinfo_file, CPUINFO_CHARS))
        versions["threads"] = str(torch.get_num_threads())
    return versions


def model_facts(workload: SourcedModel, *, name: str, dtype: str | None) -> dict[str, str]:
    """Return the identity of a model: name, dtype, parameters, weights, and the inputs of one item.

    Weights are included as exact sums of their bits: this distinguishes the files of two training
    runs, is the same on every device and for every number of threads, and is cheap enough to
    compute at every start. State that is not a tensor is not included.

    Args:
        workload: The model and its inputs.
        name: Name in the configuration: a kind, or the path of a factory.
        dtype: Configured dtype; None if the model keeps its own.
    """
    digest = hashlib.sha256()
    module = workload.module
    for key, tensor in chain(module.named_parameters(), module.named_buffers()):
        digest.update(
            f"{key} {tuple(tensor.shape)} {tensor.dtype} {_sum_of_bits(tensor)}\n".encode()
        )
    inputs = workload.inputs(workload.min_batch)
    shapes = [_form(x) for x in inputs.args]
    shapes += [f"{key} {_form(x)}" for key, x in sorted(inputs.kwargs.items())]
    facts = {
        "model": name,
        "dtype": dtype or "as made",
        "inputs": ", ".join(shapes),
        "weights": digest.hexdigest()[:LENGTH],
    }
    if workload.weights:
        facts["weights_source"] = workload.weights
    if workload.files:
        facts["file"] = digest_of(workload.files)
    return facts


def _form(x: torch.Tensor) -> str:
    """Return shape and type of an input, and its strides if it is not in row-major order."""
    form = f"{tuple(x.shape)} {x.dtype}"
    return form if x.is_contiguous() else f"{form} strides {x.stride()}"


def _sum_of_bits(tensor: torch.Tensor) -> str:
    """Return the sum of the elements as integers of their width, modulo 2^64."""
    try:
        flat = tensor.detach().contiguous()
        if flat.is_complex():
            flat = torch.view_as_real(flat)
        words = flat.flatten().view(_WORDS[flat.element_size()])
        return str(words.sum(dtype=torch.int64).item())
    except (KeyError, NotImplementedError, RuntimeError, TypeError):
        return "opaque"  # quantized, sparse or on no device: shape and dtype identify it


def _head(path: str, chars: int = HEAD_CHARS) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - one small read
            return file.read(chars)
    except OSError:
        return ""


SIDE_RUNS = 3


def capture(
    device: TorchDevice,
    run: Callable[[], object],
    cuda: Any = torch.cuda,  # noqa: ANN401 - torch's module of that name, or a stand-in
) -> Callable[[], object]:
    """Capture a forward pass; the result replays it on the same memory.

    Args:
        device: Device to run on.
        run: One forward pass over inputs at fixed addresses.
        cuda: Captures the pass.

    Raises:
        ProbeConfigError: The device is not a GPU.
        CaptureError: The pass cannot be captured.
        RuntimeError: Memory is exhausted.
    """
    if device.torch_device.type != "cuda":
        raise ProbeConfigError("cuda_graph = true needs a GPU; remove it from this probe")
    # Lazy initialization (workspaces, autotuning) must happen before the capture (torch, CUDA semantics).
    for _ in range(SIDE_RUNS):
        run()
    device.synchronize()
    graph = cuda.CUDAGraph()
    try:
        with cuda.graph(graph):
            run()
    except RuntimeError as error:
        if kind_of(error) == "oom":
            raise
        raise CaptureError(
            f"the forward pass cannot be captured as a CUDA graph ({error}); remove cuda_graph,"
            " or set a smaller batch"
        ) from error
    # With the pass: a replay reads and writes the memory of its inputs, which must not be freed.
    return partial(_replay, graph, run)


def _replay(graph: Any, _: Callable[[], object]) -> None:  # noqa: ANN401 - as above
    graph.replay()


# Execution modes of a request; each is a tag of the result.
EXECUTION_MODES = ("cold", "compile", "cuda_graph")
AUTOGRAD: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "inference_mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
}
DEFAULT_AUTOGRAD = "inference_mode"


def autograd_of(request: dict[str, Any]) -> str:
    """Return the mode of autograd in which a request runs passes, a key of AUTOGRAD."""
    return str(request.get("autograd") or DEFAULT_AUTOGRAD)


class LoadedModel(NamedTuple):
    """A model on the device.

    Attributes:
        workload: The model and its inputs.
        facts: What identifies it.
        compiled: Its module for torch.compile; None if it is not compiled.
    """

    workload: SourcedModel
    facts: dict[str, str]
    compiled: Optional[CompiledModule] = None  # noqa: UP045 - evaluated on Python 3.9

    def software(self, device: TorchDevice, request: dict[str, Any]) -> dict[str, str]:
        """Return what the fingerprint of a run is made of: software, model and execution modes."""
        names = {**software(device.torch_device), **self.facts, **modes_of(request)}
        names["timing"] = DEFINITION
        autograd = autograd_of(request)
        if autograd != DEFAULT_AUTOGRAD:
            names["autograd"] = autograd
        return names if self.compiled is None else {**names, "compile_shapes": SHAPES}


def modes_of(request: dict[str, Any]) -> dict[str, str]:
    """Return the execution modes of a request that differ from the default, as tags."""
    return {name: "true" for name in EXECUTION_MODES if request.get(name)}


def forward_pass(
    device: TorchDevice, loaded: LoadedModel, batch: int, request: dict[str, Any]
) -> tuple[Callable[[], object], Inputs]:
    """Return a forward pass in the modes of a request over inputs on the device, and those on the host.

    Raises:
        ProbeConfigError: It cannot be compiled or captured.
    """
    workload = loaded.workload
    inputs = workload.inputs(batch)
    staged = workload.staged(inputs, device.torch_device, batch)
    if loaded.compiled is not None:
        workload = workload._replace(module=loaded.compiled.for_batch(batch))
    run = workload.forward_pass(staged)
    if loaded.compiled is not None:
        _compile(run)
    return (capture(device, run) if request.get("cuda_graph") else run), inputs


def _compile(run: Callable[[], object]) -> None:
    """Run a pass once, to compile it.

    Raises:
        ProbeConfigError: It cannot be compiled.
    """
    try:
        run()
    except Exception as error:
        if kind_of(error) in {"oom", "device"}:
            raise
        raise ProbeConfigError(
            f"torch.compile failed ({describe(error, None)}); remove compile from this probe, or"
            " give its interpreter a C++ compiler and, on a GPU, triton"
        ) from error


def work_of_pass(device: TorchDevice, workload: SourcedModel, batch: int) -> PassWork:
    """Return the work of a pass of a batch, by running one; it is the same in every execution mode."""
    # Whatever an operator's module or a version of torch cannot do here, the measurement is complete:
    # FlopCounterMode cannot count a pass that computes gradients.
    with suppress(Exception), torch.inference_mode(mode=False), torch.no_grad():
        inputs = workload.inputs(batch)
        staged = workload.staged(inputs, device.torch_device, batch)
        state = staged.args[len(inputs.args) :]
        return count_pass(workload.module, workload.forward_pass(staged), state)
    return PassWork()


def check_memory(
    workload: SourcedModel,
    device: TorchDevice,
    name: str,
    batch: int,
    memory_cap_bytes: int | None = None,
) -> None:
    """Check that the weights, and the state of one batch, fit into the free memory of a device.

    The reserve for other processes counts as taken. Weights that are in the host's memory already
    count only for another device.

    Args:
        workload: The model, before it is moved to the device.
        device: The device.
        name: The model, for the error.
        batch: Items of the smallest pass that will run.
        memory_cap_bytes: The operator's bound.

    Raises:
        ProbeConfigError: They do not fit; the text has what is needed, what is free, and the fix.
    """
    module, kind = workload.module, device.torch_device.type
    weights_bytes = _bytes(
        x for x in chain(module.parameters(), module.buffers()) if x.device.type != kind
    )
    made = workload.state(batch, torch.device("meta")) if workload.state is not None else ()
    state_bytes = _bytes(made)
    need_bytes, allowed_bytes = weights_bytes + state_bytes, device.headroom_bytes()
    reserve_bytes = device.reserve_bytes()
    free = (
        f"{_gib(allowed_bytes + reserve_bytes)} are free, {_gib(reserve_bytes)} of which stay"
        " reserved for other processes"
    )
    if memory_cap_bytes is not None and memory_cap_bytes < allowed_bytes:
        allowed_bytes, free = memory_cap_bytes, f"memory_cap is {_gib(memory_cap_bytes)}"
    if need_bytes <= allowed_bytes:
        return
    parts = f"{_gib(weights_bytes)} of weights"
    if made:
        parts += f" and {_gib(state_bytes)} of KV cache at batch {batch}"
    is_wide = any(x.dtype == torch.float32 for x in module.parameters())
    fixes = [
        *(['dtype = "bf16"'] if is_wide else []),
        *(["fewer context_tokens", "a smaller batch"] if made else []),
        "a smaller model",
    ]
    raise ProbeConfigError(
        f"{name}: needs at least {parts}, and {free}: use {' or '.join(fixes)}, or end what holds"
        " the memory"
    )


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(x.numel() * x.element_size() for x in tensors)


def _gib(size: int) -> str:
    return f"{max(size, 0) / GIB:.2f} GiB"
