"""The built-in decoder: logits against a reference, tokens of a run, and the memory that it needs."""

import pytest
from costprobe.adapters.probe_child.results import ProbeResult
from costprobe_probes.sources.kinds import MODELS, DecoderShape
from costprobe_probes.wire import ProbeConfigError, Spec
from fakes.kept_worker import worker_with
from fakes.lazy import LazyModule

torch = LazyModule("torch")
decoder = LazyModule("costprobe_probes.sources.builtin")
models = LazyModule("costprobe_probes.model")

GIB = 1 << 30
TOKENS = 7
# Groups of one, several and all query heads.
SHAPES = [
    DecoderShape(50, 24, 2, 6, kv_heads, 4, 20, is_tied=kv_heads == 1) for kv_heads in (1, 2, 6)
]


def made(shape):
    model = decoder.Decoder(shape, TOKENS, is_prefill=True)
    model.fill(3)
    for parameter in model.parameters():  # of a size at which positions and heads matter
        parameter.data.mul_(8.0) if parameter.dim() > 1 else parameter.data.uniform_(0.5, 1.5)
    return model


def reference(model, tokens):
    """Logits after every token, in fp64 and without a cache: complex rotations, repeated heads, a mask."""
    shape, count = model.shape, tokens.shape[1]
    state = {name: value.double() for name, value in model.state_dict().items()}

    def norm(x, name):
        return x / x.pow(2).mean(-1, keepdim=True).add(1e-5).sqrt() * state[f"{name}.weight"]

    def heads(x, name):
        found = (x @ state[f"{name}.weight"].T).unflatten(-1, (-1, shape.head)).transpose(1, 2)
        return found.split([shape.heads, shape.kv_heads, shape.kv_heads], dim=1)

    rates = 500_000.0 ** (-torch.arange(shape.head // 2).double() * 2 / shape.head)
    angles = torch.outer(torch.arange(count).double(), rates)

    def turned(x):
        low, high = x.chunk(2, -1)
        turn = torch.complex(low, high) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([turn.real, turn.imag], -1)

    mask = torch.ones(count, count, dtype=torch.bool).tril()
    x = state["embedding.weight"][tokens]
    for layer in range(shape.layers):
        name = f"blocks.{layer}"
        inner = norm(x, f"{name}.norm_attention")
        q, k, v = heads(inner, f"{name}.attention.qkv")
        group = shape.heads // shape.kv_heads
        k, v = (each.repeat_interleave(group, 1) for each in (turned(k), v))
        mixed = torch.nn.functional.scaled_dot_product_attention(turned(q), k, v, attn_mask=mask)
        x = x + mixed.transpose(1, 2).flatten(2) @ state[f"{name}.attention.out.weight"].T
        inner = norm(x, f"{name}.norm_mlp")
        gate, up = (inner @ state[f"{name}.gate_up.weight"].T).chunk(2, -1)
        hidden = torch.nn.functional.silu(gate) * up
        x = x + hidden @ state[f"{name}.down.weight"].T
    return norm(x, "norm") @ state["head.weight"].T


def test_prefill_and_decoding_with_the_cache_give_the_logits_of_the_reference():
    for shape in SHAPES:
        model = made(shape)
        tokens = torch.randint(0, shape.vocabulary, (3, TOKENS))
        expected = reference(model, tokens)
        assert expected.std() > 0.5  # differences would show
        with torch.inference_mode():
            stepped = torch.full(model.cache_shape(3), torch.nan)
            for at in range(TOKENS):
                logits = model.at(tokens[:, at : at + 1], stepped, at)
                assert torch.allclose(logits.double(), expected[:, at], atol=1e-4), (shape, at)
                prefix = model.at(tokens[:, : at + 1], torch.empty(model.cache_shape(3)), 0)
                assert torch.allclose(prefix.double(), expected[:, at], atol=1e-4), (shape, at)
            filled = torch.full(model.cache_shape(3), torch.nan)
            model(tokens, filled)
        assert torch.allclose(filled, stepped, atol=1e-5), shape


def test_sizes_have_the_parameters_and_the_cache_of_the_models_that_they_are_named_after():
    found = {}
    for name in MODELS:
        sourced = models.load(Spec("decoder", model=name, dtype="bf16"), 0)
        weights = sum(x.numel() for x in sourced.module.parameters())
        (cache,) = sourced.state(1, torch.device("meta"))
        # Nothing of the weights exists before the model is on its device.
        assert all(x.is_meta for x in sourced.module.parameters())
        found[name] = (weights, cache.numel() * cache.element_size() // 512)
    # Parameters, and bytes of the KV cache of a token in bf16.
    assert found["1B/prefill"] == found["1B/decode"] == (1_235_814_400, 32_768)
    assert found["8B/prefill"] == found["8B/decode"] == (8_030_261_248, 131_072)


def test_prefill_and_decode_report_their_tokens():
    tokens = {"prefill": (16.0, None), "decode": (None, 1.0)}
    with worker_with() as run:
        for phase, (tokens_in, tokens_out) in tokens.items():
            model = {"model": f"small/{phase}", "context_tokens": 16}
            result = run("decoder", **model)
            assert isinstance(result, ProbeResult), result
            assert (result.tokens_in, result.tokens_out) == (tokens_in, tokens_out)
            assert result.window_tokens_in == (tokens_in and tokens_in * result.inferences)
            assert result.window_tokens_out == (tokens_out and tokens_out * result.inferences)
            longer = run("decoder", **{**model, "context_tokens": 17})
            assert longer.fingerprint != result.fingerprint
            start = run("decoder", cold_start=True, **model)
            assert start.fingerprint == result.fingerprint


class FullDevice:
    """A GPU with a number of bytes that a probe may take."""

    def __init__(self, free_bytes):
        self.torch_device = torch.device("cuda")
        self._free_bytes = free_bytes

    def headroom_bytes(self):
        return self._free_bytes

    def reserve_bytes(self):
        return 14 * GIB


def test_model_that_does_not_fit_is_refused_with_what_it_needs():
    sourced = models.load(Spec("decoder", model="8B/decode", dtype="bf16"), 0)
    weights = "14.96 GiB of weights and 1.00 GiB of KV cache at batch 16"
    of_model = f"decoder:8B/decode: needs at least {weights}"
    use = "use fewer context_tokens or"
    for free_gib, cap_gib, words in (
        (16, None, None),
        (15, None, f"{of_model}, and 29.00 GiB are free, 14.00 GiB of"),
        (80, 15, f"{of_model}, and memory_cap is 15.00 GiB: {use}"),
        (-1, None, "and 13.00 GiB are free, 14.00 GiB of which stay reserved for other processes"),
    ):
        device = FullDevice(free_gib * GIB)
        cap_bytes = None if cap_gib is None else cap_gib * GIB
        arguments = (sourced, device, "decoder:8B/decode", 16, cap_bytes)
        if words is None:
            models.check_memory(*arguments)
        else:
            with pytest.raises(ProbeConfigError) as caught:
                models.check_memory(*arguments)
            assert words in str(caught.value)
    # On the host, weights that are loaded already take nothing more.
    loaded = models.load(Spec("cnn", dtype="fp32"), 0)
    device = FullDevice(0)
    device.torch_device = torch.device("cpu")
    models.check_memory(loaded, device, "cnn", 1)
    with pytest.raises(ProbeConfigError, match=r"cnn: needs at least 0\.00 GiB of weights, and"):
        models.check_memory(loaded, FullDevice(0), "cnn", 1)
