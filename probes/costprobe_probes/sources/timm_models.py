"""timm image models, by name."""

from __future__ import annotations

from typing import Any

from costprobe_probes.errors import ProbeConfigError
from costprobe_probes.sources.described import described, image
from costprobe_probes.sources.files import load_weights
from costprobe_probes.sources.model_source import SourcedModel
from costprobe_probes.sources.packages import import_package, offline, similar_names
from costprobe_probes.spec import Spec

IMAGE_SIZE = (3, 224, 224)


def load_timm(spec: Spec) -> SourcedModel:
    """Build a model with random weights, or those of a file.

    Raises:
        ProbeConfigError: The package or the model is missing, or the weights do not fit.
    """
    offline()
    timm: Any = import_package("timm", "timm")
    name = spec.model or ""
    if not timm.is_model(name):
        raise ProbeConfigError(
            f"timm has no model {name!r}{similar_names(name, timm.list_models())}"
        )
    module = timm.create_model(name, pretrained=False)
    if spec.weights:
        load_weights(module, spec.weights)
    size = tuple((getattr(module, "pretrained_cfg", None) or {}).get("input_size") or IMAGE_SIZE)
    inputs = described(spec.inputs) if spec.inputs else image(*size)
    files = (spec.weights,) if spec.weights else ()
    return SourcedModel(module, inputs, "file" if files else "random", files)
