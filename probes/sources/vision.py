"""The image models of torchvision, by their names."""

from __future__ import annotations

import inspect
from typing import Any

from probes.errors import ConfigError
from probes.sources import Sourced
from probes.sources.described import described, image
from probes.sources.files import load_weights
from probes.sources.packages import near, needed
from probes.spec import Spec

PIXELS = 224


def load(spec: Spec) -> Sourced:
    """Makes a model with random weights, or those of a file.

    Raises:
        ConfigError: The package or the model is not there, or the weights do not fit.
    """
    models: Any = needed("torchvision.models", "torchvision")
    name = spec.model or ""
    try:
        build = models.get_model_builder(name)
    except ValueError as error:
        raise ConfigError(
            f"torchvision has no model {name!r}{near(name, models.list_models())}"
        ) from error
    # A model's backbone is fetched from the network unless it is told not to be.
    options = [key for key in inspect.signature(build).parameters if key == "weights_backbone"]
    module = build(weights=None, **dict.fromkeys(options))
    if spec.weights:
        load_weights(module, spec.weights)
    inputs = described(spec.inputs) if spec.inputs else image(3, PIXELS, PIXELS)
    files = (spec.weights,) if spec.weights else ()
    return Sourced(module, inputs, "file" if files else "random", files)
