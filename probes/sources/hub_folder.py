"""Models of transformers, from a folder on this host as save_pretrained writes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from probes.errors import ConfigError, kind_of
from probes.sources import Sourced
from probes.sources.described import described
from probes.sources.files import checked_file
from probes.sources.packages import needed, offline
from probes.spec import Spec

TOKENS = 128
CHANNELS = 3


def load(spec: Spec) -> Sourced:
    """Loads a folder's model, with random weights where it holds a configuration alone.

    Its code is the package's own: code that lies in the folder is never run.

    Raises:
        ConfigError: The package is not there, or the folder holds no model.
    """
    offline()
    folder = Path(spec.model or "")
    checked_file(str(folder / "config.json"), "model's config.json")
    transformers: Any = needed("transformers", "transformers")
    transformers.logging.set_verbosity_error()
    weights = sorted(str(path) for path in folder.glob("*.safetensors"))
    if not weights and any(folder.glob("*.bin")):
        raise ConfigError(
            f"{folder}: holds pickled weights (*.bin) alone; save them as safetensors, by"
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
            raise  # there was no memory for it
        words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise ConfigError(f"{folder}: transformers cannot load it ({words})") from error
    if hasattr(module.config, "use_cache"):
        module.config.use_cache = False  # one pass, whose keys and values nobody asks for again
    inputs = described(spec.inputs) if spec.inputs else _inputs(config, folder)
    files = (str(folder / "config.json"), *weights)
    return Sourced(module, inputs, "file" if weights else "random", files)


def _class_of(transformers: Any, config: Any) -> Any:  # noqa: ANN401 - the package's own
    """The class that the folder names, if it is one of the package's models; else None."""
    named = (getattr(config, "architectures", None) or [None])[0]
    found = getattr(transformers, named, None) if named else None
    is_model = isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)
    return found if is_model else None


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
    """Token ids for a model of text, pixels for one of images."""
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
    raise ConfigError(f"{folder}: its config.json does not say what it takes; set inputs")
