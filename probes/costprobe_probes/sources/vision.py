"""torchvision image models, by name."""

from __future__ import annotations

import inspect
from typing import Any

from costprobe_probes.errors import ProbeConfigError
from costprobe_probes.sources.described import described, image
from costprobe_probes.sources.files import load_weights
from costprobe_probes.sources.model_source import SourcedModel
from costprobe_probes.sources.packages import import_package, similar_names
from costprobe_probes.spec import Spec

PIXELS = 224


def load_torchvision(spec: Spec) -> SourcedModel:
    """Build a model with random weights, or those of a file.

    Raises:
        ProbeConfigError: The package or the model is missing, or the weights do not fit.
    """
    models: Any = import_package("torchvision.models", "torchvision")
    name = spec.model or ""
    try:
        build = models.get_model_builder(name)
    except ValueError as error:
        raise ProbeConfigError(
            f"torchvision has no model {name!r}{similar_names(name, models.list_models())}"
        ) from error
    # By default a model's backbone weights are downloaded.
    options = [key for key in inspect.signature(build).parameters if key == "weights_backbone"]
    module = build(weights=None, **dict.fromkeys(options))
    if spec.weights:
        load_weights(module, spec.weights)
    inputs = described(spec.inputs) if spec.inputs else image(3, PIXELS, PIXELS)
    files = (spec.weights,) if spec.weights else ()
    return SourcedModel(module, inputs, "file" if files else "random", files)
