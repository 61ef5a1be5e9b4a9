"""transformers models, from a folder on this host in the format of save_pretrained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from costprobe_probes.errors import ProbeConfigError, kind_of
from costprobe_probes.sources.described import described
from costprobe_probes.sources.files import checked_file
from costprobe_probes.sources.model_source import SourcedModel
from costprobe_probes.sources.packages import import_package, offline
from costprobe_probes.spec import Spec

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
