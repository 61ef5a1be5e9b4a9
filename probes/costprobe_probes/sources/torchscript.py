"""TorchScript programs, written by torch.jit.save.

Such a file contains a program, not only weights, and is trusted in the same way as an operator's
factory.
"""

from __future__ import annotations

import warnings

import torch

from costprobe_probes.errors import ProbeConfigError, kind_of
from costprobe_probes.sources.described import described
from costprobe_probes.sources.files import checked_file
from costprobe_probes.sources.model_source import SourcedModel
from costprobe_probes.spec import Spec


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
