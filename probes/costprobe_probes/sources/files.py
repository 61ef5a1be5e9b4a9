"""Model files: checked before they are read, and read without unpickling."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from costprobe_probes.errors import ProbeConfigError, kind_of
from costprobe_probes.regular_file import open_regular
from costprobe_probes.sources.packages import import_package

DIGEST_CHARS = 12
CHUNK_BYTES = 1 << 20


def checked_file(text: str | None, purpose: str) -> Path:
    """Return the path of a readable file.

    Raises:
        ProbeConfigError: It does not exist or is not readable.
    """
    path = Path(text or "")
    try:
        with open_regular(path):
            return path
    except OSError as error:
        raise ProbeConfigError(
            f"{path}: the {purpose} cannot be read ({error.strerror}); check the path, and that the"
            " service's user may read it"
        ) from error


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
