"""The image models of timm, by their names."""

from __future__ import annotations

from typing import Any

from probes.errors import ConfigError
from probes.sources import Sourced
from probes.sources.described import described, image
from probes.sources.files import load_weights
from probes.sources.packages import near, needed, offline
from probes.spec import Spec

IMAGE_SIZE = (3, 224, 224)


def load(spec: Spec) -> Sourced:
    """Makes a model with random weights, or those of a file.

    Raises:
        ConfigError: The package or the model is not there, or the weights do not fit.
    """
    offline()
    timm: Any = needed("timm", "timm")
    name = spec.model or ""
    if not timm.is_model(name):
        raise ConfigError(f"timm has no model {name!r}{near(name, timm.list_models())}")
    module = timm.create_model(name, pretrained=False)
    if spec.weights:
        load_weights(module, spec.weights)
    size = tuple((getattr(module, "pretrained_cfg", None) or {}).get("input_size") or IMAGE_SIZE)
    inputs = described(spec.inputs) if spec.inputs else image(*size)
    files = (spec.weights,) if spec.weights else ()
    return Sourced(module, inputs, "file" if files else "random", files)
