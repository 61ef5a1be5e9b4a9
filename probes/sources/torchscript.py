"""TorchScript programs, as torch.jit.save writes them.

Such a file holds a program and not only weights: it is as trusted as an operator's own factory.
"""

from __future__ import annotations

import warnings

import torch

from probes.errors import ConfigError, kind_of
from probes.sources import Sourced
from probes.sources.described import described, runs_as_saved
from probes.sources.files import checked_file
from probes.spec import Spec


def load(spec: Spec) -> Sourced:
    """Loads a program.

    Raises:
        ConfigError: The file is none, its inputs are not described, or a dtype is asked for.
    """
    runs_as_saved(spec)
    path = checked_file(spec.model, "TorchScript file")
    if not spec.inputs:
        raise ConfigError(
            f"{path}: a TorchScript program does not say what it takes; set inputs, such as"
            " inputs = [{ shape = [3, 224, 224] }]"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its deprecation, which an operator cannot help
            module = torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call] # torch does not type it
    except (RuntimeError, ValueError) as error:
        if kind_of(error) != "crash":
            raise  # there was no memory for it
        words = " ".join(str(error).split())[:200]
        raise ConfigError(f"{path}: is no TorchScript file ({words})") from error
    return Sourced(module, described(spec.inputs), "file", (str(path),))
