"""Models of torchvision, timm and transformers, and an operator's own factory.

torchvision and timm image models are selected by name, transformers models by a folder on this
host in the format of save_pretrained.

The factory, `module = "package.mod:factory"`, is called once, without arguments, and returns a
pair: the `torch.nn.Module` and its example inputs. These are a tensor, a list or tuple of tensors
(positional arguments), or a dict of tensors (keyword arguments), each with the batch as its first
dimension; their rows are repeated to the batch that is measured. Where repetition is wrong, the
second of the pair is a function that takes the batch and returns such inputs.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from costprobe_probes.sources.files import (
    checked_file,
    import_package,
    load_weights,
    offline,
    similar_names,
)
from costprobe_probes.sources.model_source import (
    SourcedModel,
    checked_inputs,
    described,
    image,
    repeat_rows,
)
from costprobe_probes.wire import ProbeConfigError, Spec, kind_of


def load_from_factory(spec: Spec) -> SourcedModel:
    """Call the operator's factory.

    Raises:
        ProbeConfigError: The factory cannot be imported, or returns something else.
    """
    name = str(spec.module)
    if spec.path is not None and spec.path not in sys.path:
        sys.path.insert(0, spec.path)
    built = _imported(spec.module)()
    if not (isinstance(built, (tuple, list)) and len(built) == 2):  # noqa: PLR2004 - a pair
        raise ProbeConfigError(f"{name}: must return (torch module, example inputs)")
    model, examples = built
    if not isinstance(model, nn.Module):
        raise ProbeConfigError(f"{name}: returned a {type(model).__name__}, not a torch.nn.Module")
    return SourcedModel(model, lambda batch: _batch_of(name, examples, batch))


def _batch_of(name: str, examples: Any, batch: int) -> Any:  # noqa: ANN401 - an operator's factory
    if callable(examples):
        return examples(batch)
    inputs = checked_inputs(name, examples).map(lambda x: repeat_rows(x, batch))
    return inputs.kwargs or inputs.args


def _imported(module: str | None) -> Callable[[], Any]:
    module_name, _, factory_name = (module or "").partition(":")
    try:
        factory = getattr(importlib.import_module(module_name), factory_name)
    except ImportError as error:
        raise ProbeConfigError(
            f"{module}: cannot be imported ({error}); set path in [[probe]] to its folder, or"
            " python to the interpreter that has it"
        ) from error
    except AttributeError as error:
        raise ProbeConfigError(
            f"{module}: {module_name} has no {factory_name} ({error})"
        ) from error
    if not callable(factory):
        raise ProbeConfigError(f"{module}: is a {type(factory).__name__}, not a function")
    imported: Callable[[], Any] = factory
    return imported


TOKENS = 128
CHANNELS = 3


def load_transformers(spec: Spec) -> SourcedModel:
    """Load the model of a folder, with random weights if it contains only a configuration.

    The model's code is that of the package: code in the folder is never run.

    Raises:
        ProbeConfigError: The package is missing, or the folder contains no model.
    """
    offline()
    folder = Path(spec.model or "")
    checked_file(str(folder / "config.json"), "model's config.json")
    transformers: Any = import_package("transformers", "transformers")
    transformers.logging.set_verbosity_error()
    weights = sorted(str(path) for path in folder.glob("*.safetensors"))
    if not weights and any(folder.glob("*.bin")):
        raise ProbeConfigError(
            f"{folder}: contains only pickled weights (*.bin); save them as safetensors, by"
            " model.save_pretrained(folder)"
        )
    try:
        config = transformers.AutoConfig.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
        kind = _class_of(transformers, config)
        module = _made(transformers, kind, folder, config, has_weights=bool(weights))
    except Exception as error:
        if kind_of(error) != "crash":
            raise  # out of memory
        words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise ProbeConfigError(f"{folder}: transformers cannot load it ({words})") from error
    if hasattr(module.config, "use_cache"):
        module.config.use_cache = False  # one pass: keys and values are not reused
    inputs = described(spec.inputs) if spec.inputs else _inputs(config, folder)
    files = (str(folder / "config.json"), *weights)
    return SourcedModel(module, inputs, "file" if weights else "random", files)


def _class_of(transformers: Any, config: Any) -> Any:  # noqa: ANN401 - the package's own
    """Return the class in the configuration if it is a model of the package; else None."""
    class_name = (getattr(config, "architectures", None) or [None])[0]
    model_class = getattr(transformers, class_name, None) if class_name else None
    is_model = isinstance(model_class, type) and issubclass(
        model_class, transformers.PreTrainedModel
    )
    return model_class if is_model else None


def _made(
    transformers: Any,  # noqa: ANN401 - as above
    kind: Any,  # noqa: ANN401 - as above
    folder: Path,
    config: Any,  # noqa: ANN401 - as above
    *,
    has_weights: bool,
) -> Any:  # noqa: ANN401 - as above
    if has_weights:
        maker = kind or transformers.AutoModel
        return maker.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False, use_safetensors=True
        )
    if kind is not None:
        return kind(config)
    return transformers.AutoModel.from_config(config, trust_remote_code=False)


def _inputs(config: Any, folder: Path) -> Callable[[int], dict[str, torch.Tensor]]:  # noqa: ANN401 - as above
    """Return token ids for a text model, pixels for an image model."""
    vocabulary = getattr(config, "vocab_size", None)
    if vocabulary:
        longest = int(getattr(config, "max_position_embeddings", TOKENS) or TOKENS)
        tokens = min(TOKENS, longest)

        def text(batch: int) -> dict[str, torch.Tensor]:
            return {
                "input_ids": torch.randint(0, int(vocabulary), (batch, tokens)),
                "attention_mask": torch.ones(batch, tokens, dtype=torch.int64),
            }

        return text
    size = getattr(config, "image_size", None)
    if size:
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        channels = int(getattr(config, "num_channels", CHANNELS))
        return lambda batch: {"pixel_values": torch.randn(batch, channels, int(height), int(width))}
    raise ProbeConfigError(f"{folder}: cannot derive the inputs from its config.json; set inputs")


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
    size = (getattr(module, "pretrained_cfg", None) or {}).get("input_size") or IMAGE_SIZE
    return _image_model(module, spec, tuple(size))


def _image_model(module: nn.Module, spec: Spec, size: tuple[int, ...]) -> SourcedModel:
    """Return a model for images of a size, with the weights and the inputs of its spec."""
    if spec.weights:
        load_weights(module, spec.weights)
    inputs = described(spec.inputs) if spec.inputs else image(*size)
    files = (spec.weights,) if spec.weights else ()
    return SourcedModel(module, inputs, "file" if files else "random", files)


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
    return _image_model(build(weights=None, **dict.fromkeys(options)), spec, IMAGE_SIZE)
