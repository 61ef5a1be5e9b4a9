"""Files of models: looked at before they are read, and read without unpickling anything."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from probes.errors import ConfigError, kind_of
from probes.sources.packages import needed

DIGEST_CHARS = 12
CHUNK_BYTES = 1 << 20


def checked_file(text: str | None, what: str) -> Path:
    """The path of a file that is there and may be read.

    Raises:
        ConfigError: It is not.
    """
    path = Path(text or "")
    try:
        with path.open("rb"):
            return path
    except OSError as error:
        raise ConfigError(
            f"{path}: the {what} cannot be read ({error.strerror}); check the path, and that the"
            " service's user may read it"
        ) from error


def load_weights(module: nn.Module, text: str) -> None:
    """Loads a file of weights into a module; nothing but tensors is read from it.

    Raises:
        ConfigError: It cannot be read, holds something else, or is for another model.
    """
    path = checked_file(text, "weights file")
    state = _safetensors(path) if path.suffix == ".safetensors" else _state(path)
    if not isinstance(state, Mapping):
        raise ConfigError(f"{path}: holds no state dict; save model.state_dict()")
    try:
        module.load_state_dict(state)
    except (AttributeError, RuntimeError, TypeError) as error:
        if kind_of(error) != "crash":
            raise  # there was no memory for it
        first = " ".join(str(error).split())[:300]
        raise ConfigError(f"{path}: does not fit the model: {first}") from error


def digest_of(files: Iterable[str]) -> str:
    """Twelve hex digits of the SHA-256 of files, with their names, in order of the names."""
    whole = hashlib.sha256()
    for name in sorted(files):
        whole.update(Path(name).name.encode() + b"\0")
        with open(name, "rb") as file:  # noqa: PTH123 - read in chunks
            for chunk in iter(lambda: file.read(CHUNK_BYTES), b""):
                whole.update(chunk)
    return whole.hexdigest()[:DIGEST_CHARS]


def _safetensors(path: Path) -> Mapping[str, torch.Tensor]:
    safetensors: Any = needed("safetensors.torch", "safetensors")
    try:
        state: Mapping[str, torch.Tensor] = safetensors.load_file(str(path))
    except Exception as error:
        if kind_of(error) != "crash":
            raise  # there was no memory for it
        raise ConfigError(f"{path}: is no safetensors file ({error})") from error
    return state


def _state(path: Path) -> object:
    """What torch.save wrote: mapped, or read where it or this torch (before 2.1) cannot be."""
    for how in ({"mmap": True}, {}):
        try:
            return torch.load(str(path), map_location="cpu", weights_only=True, **how)
        except pickle.UnpicklingError as error:
            raise ConfigError(
                f"{path}: is damaged or holds more than tensors, and is not unpickled: save"
                " model.state_dict(), or a .safetensors file"
            ) from error
        except Exception as error:
            # Torch has no class of its own for what it cannot read, and raises what it stumbles over.
            # Files older than torch 1.6 are no zip archive, and cannot be mapped.
            if not how:
                if kind_of(error) != "crash":
                    raise
                raise ConfigError(f"{path}: is no file of weights ({error})") from error
    return None
