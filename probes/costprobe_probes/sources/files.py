"""Model files of TorchScript (torch.jit.save) and torch.export (.pt2, torch.export.save).

Files are checked before they are read, read without unpickling, and opened without waiting for
the writer of a FIFO. Such a file contains a program, not only weights, and is trusted in the same
way as an operator's factory. The tensors of a torch.export program are still read with
weights_only=True.

Optional packages of a model source, in the probe's interpreter, are imported here.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import os
import pickle
import stat
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from costprobe_probes.sources.model_source import (
    SourcedModel,
    checked_inputs,
    described,
    repeat_rows,
)
from costprobe_probes.wire import ProbeConfigError, Spec, kind_of


def import_package(module: str, package: str) -> ModuleType:
    """Import a module of an optional package.

    Raises:
        ProbeConfigError: It is missing, or does not match the interpreter's torch.
    """
    try:
        return importlib.import_module(module)
    except (ImportError, OSError, RuntimeError) as error:
        words = " ".join(str(error).split())[:200]
        raise ProbeConfigError(
            f"{package} cannot be imported by {sys.executable} ({words}); install the build that"
            " matches its torch there, or set python in [[probe]] to the interpreter that has it"
        ) from error


def offline() -> None:
    """Disable network access of the Hugging Face libraries."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_OFFLINE"] = "1"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"


def similar_names(name: str, known: Iterable[str]) -> str:
    """Return similar names as the end of a sentence; empty if there are none."""
    matches = difflib.get_close_matches(name, list(known), n=3)
    return f"; similar names: {', '.join(matches)}" if matches else ""


DIGEST_CHARS = 12
CHUNK_BYTES = 1 << 20


def checked_file(text: str | None, purpose: str) -> Path:
    """Return the path of a readable file.

    Raises:
        ProbeConfigError: It does not exist or is not readable.
    """
    path, reason = Path(text or ""), None
    try:
        # Without waiting for the writer of a FIFO.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        reason = None if stat.S_ISREG(os.fstat(handle).st_mode) else "not a regular file"
        os.close(handle)
    except OSError as error:
        reason = error.strerror
    if reason is not None:
        raise ProbeConfigError(
            f"{path}: the {purpose} cannot be read ({reason}); check the path, and that the"
            " service's user may read it"
        )
    return path


def load_weights(module: nn.Module, text: str) -> None:
    """Load a weights file into a module; only tensors are read from it.

    Raises:
        ProbeConfigError: It cannot be read, contains other objects, or does not fit the model.
    """
    path = checked_file(text, "weights file")
    state = _safetensors(path) if path.suffix == ".safetensors" else _state(path)
    if not isinstance(state, Mapping):
        raise ProbeConfigError(f"{path}: contains no state dict; save model.state_dict()")
    try:
        module.load_state_dict(state)
    except (AttributeError, RuntimeError, TypeError) as error:
        if kind_of(error) != "crash":
            raise  # out of memory
        first = " ".join(str(error).split())[:300]
        raise ProbeConfigError(f"{path}: does not fit the model: {first}") from error


def digest_of(files: Iterable[str]) -> str:
    """Return twelve hex digits of the SHA-256 of files with their names, in order of the names."""
    content_hash = hashlib.sha256()
    for name in sorted(files):
        content_hash.update(Path(name).name.encode() + b"\0")
        with open(name, "rb") as file:  # noqa: PTH123 - read in chunks
            for chunk in iter(lambda: file.read(CHUNK_BYTES), b""):
                content_hash.update(chunk)
    return content_hash.hexdigest()[:DIGEST_CHARS]


def _safetensors(path: Path) -> Mapping[str, torch.Tensor]:
    safetensors: Any = import_package("safetensors.torch", "safetensors")
    try:
        state: Mapping[str, torch.Tensor] = safetensors.load_file(str(path))
    except Exception as error:
        if kind_of(error) != "crash":
            raise  # out of memory
        raise ProbeConfigError(f"{path}: not a safetensors file ({error})") from error
    return state


def _state(path: Path) -> object:
    """Load a file of torch.save: memory-mapped, or read where mapping is not supported."""
    for how in ({"mmap": True}, {}):
        try:
            return torch.load(str(path), map_location="cpu", weights_only=True, **how)
        except pickle.UnpicklingError as error:
            raise ProbeConfigError(
                f"{path}: is damaged or contains objects other than tensors, which are not unpickled: save"
                " model.state_dict(), or a .safetensors file"
            ) from error
        except Exception as error:
            # torch has no exception class for an unreadable file, and may raise anything.
            # Files from before torch 1.6 are not zip archives, and cannot be mapped.
            if not how:
                if kind_of(error) != "crash":
                    raise
                raise ProbeConfigError(f"{path}: not a weights file ({error})") from error
    return None


# torch represents "no upper bound" by a number of this size.
UNBOUNDED = 1 << 30
# torch.export.load unpickles arbitrary objects unless this variable is set.
TENSORS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


def load_exported(spec: Spec) -> SourcedModel:
    """Load a program, with the batch sizes that it was exported for.

    Raises:
        ProbeConfigError: The file is not a program, or no inputs are known.
    """
    path = checked_file(spec.model, "exported program")
    try:
        with _tensors_only():
            program: Any = torch.export.load(str(path))
    except Exception as error:
        if kind_of(error) != "crash":
            raise  # out of memory
        words = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ProbeConfigError(
            f"{path}: cannot be loaded as a torch.export program by torch {torch.__version__}"
            f" ({words}); export it again with the torch of the probe's interpreter"
        ) from error
    least, most = _batch_range(program)
    if spec.inputs:
        inputs = described(spec.inputs)
    elif program.example_inputs is not None:
        inputs = _batches_of(str(path), *program.example_inputs)
    else:
        raise ProbeConfigError(f"{path}: has no example inputs; set inputs")

    def move(device: torch.device) -> nn.Module:
        """Move a program, which stores its device with its weights."""
        passes: Any = _passes()
        if device.type != "cpu" and hasattr(passes, "move_to_device_pass"):
            moved: nn.Module = passes.move_to_device_pass(program, device).module()
            return moved
        plain: nn.Module = program.module()
        return plain.to(device)

    return SourcedModel(program.module(), inputs, "file", (str(path),), move, least, most)


def _passes() -> ModuleType | None:
    """Import torch.export.passes, which exists from torch 2.7 on."""
    try:
        return importlib.import_module("torch.export.passes")
    except ImportError:
        return None


def _batch_range(program: Any) -> tuple[int, int | None]:  # noqa: ANN401 - torch's own
    """Return the smallest and the largest batch, from the first dimension of the first input."""
    wanted = set(program.graph_signature.user_inputs)
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if (
            node.op == "placeholder"
            and node.name in wanted
            and isinstance(value, torch.Tensor)
            and value.dim()
        ):
            first = value.shape[0]
            if isinstance(first, int):
                return first, first
            bounds = program.range_constraints.get(first.node.expr)
            if bounds is None:
                return 1, None
            # The bound may be an infinity of sympy, which int() does not accept.
            upper = int(bounds.upper) if bounds.upper < UNBOUNDED else None
            return max(1, int(bounds.lower)), upper
    return 1, None


def _batches_of(path: str, args: Any, kwargs: Any) -> Callable[[int], Any]:  # noqa: ANN401 - as above
    """Return a function that makes a batch by repeating the rows of the example inputs."""
    if args and kwargs:
        raise ProbeConfigError(
            f"{path}: has arguments by position and by keyword; export it with all of one kind"
        )
    examples = checked_inputs(path, kwargs or args)

    def make(batch: int) -> Any:  # noqa: ANN401 - a tuple or a dict of tensors
        found = examples.map(lambda x: repeat_rows(x, batch))
        return found.kwargs or found.args

    return make


@contextmanager
def _tensors_only() -> Iterator[None]:
    """Prevent torch from unpickling other objects."""
    before = os.environ.get(TENSORS_ONLY)
    os.environ[TENSORS_ONLY] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[TENSORS_ONLY]
        else:
            os.environ[TENSORS_ONLY] = before


def load_torchscript(spec: Spec) -> SourcedModel:
    """Load a program.

    Raises:
        ProbeConfigError: The file is not a program, or no inputs are configured.
    """
    path = checked_file(spec.model, "TorchScript file")
    if not spec.inputs:
        raise ProbeConfigError(
            f"{path}: a TorchScript program does not record its inputs; set inputs, such as"
            " inputs = [{ shape = [3, 224, 224] }]"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its deprecation, which an operator cannot change
            module = torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call] # torch does not type it
    except (RuntimeError, ValueError) as error:
        if kind_of(error) != "crash":
            raise  # out of memory
        words = " ".join(str(error).split())[:200]
        raise ProbeConfigError(f"{path}: not a TorchScript file ({words})") from error
    return SourcedModel(module, described(spec.inputs), "file", (str(path),))
