"""The built-in decoders: prefill and decode of one model, as two kinds of pass."""

from __future__ import annotations

import torch
from torch import nn

from costprobe_probes.decoder import Decoder
from costprobe_probes.decoder_shapes import CONTEXT_TOKENS, MODELS, SHAPES
from costprobe_probes.errors import ProbeConfigError
from costprobe_probes.sources.model_source import SourcedModel
from costprobe_probes.spec import Spec


def load_decoder(spec: Spec) -> SourcedModel:
    """Return a decoder without weights; they are made on the device, without a copy on the host.

    Raises:
        ProbeConfigError: No such size or phase.
    """
    if spec.model not in MODELS:
        raise ProbeConfigError(
            f"no decoder {spec.model!r}; write one of {', '.join(MODELS)} after decoder:"
        )
    size, phase = str(spec.model).split("/")
    is_prefill = phase == "prefill"
    shape, context = SHAPES[size], spec.context_tokens or CONTEXT_TOKENS
    seed = torch.initial_seed()
    with torch.device("meta"):
        module = Decoder(shape, context, is_prefill=is_prefill)
    tokens = context if is_prefill else 1

    def made_on(device: torch.device) -> nn.Module:
        module.to_empty(device=device)
        # to_empty allocates a shared tensor once for each of its names.
        if shape.is_tied:
            module.head.weight = module.embedding.weight
        module.fill(seed)
        return module.eval()

    def cache(batch: int, device: torch.device) -> tuple[torch.Tensor, ...]:
        dtype = module.embedding.weight.dtype
        # Of random numbers: a board needs less power for zeros.
        generator = None if device.type == "meta" else torch.Generator(device).manual_seed(seed)
        size = module.cache_shape(batch)
        return (torch.empty(size, dtype=dtype, device=device).normal_(generator=generator),)

    return SourcedModel(
        module,
        lambda batch: torch.randint(0, shape.vocabulary, (batch, tokens)),
        move=made_on,
        state=cache,
        tokens_in=context if is_prefill else None,
        tokens_out=None if is_prefill else 1,
    )
