"""FLOP and bytes of a pass, against their formulas."""

import pytest
from costprobe_probes.wire import Spec
from fakes.lazy import LazyModule

torch = LazyModule("torch")
pass_work = LazyModule("costprobe_probes.pass_work")
models = LazyModule("costprobe_probes.model")

BYTES = 4


def work_of(module, *inputs, state=()):
    with torch.no_grad():
        return pass_work.count_pass(module, lambda: module(*inputs, *state), state)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_flop_and_bytes_are_those_of_the_formulas():
    nn = torch.nn

    class Routed(nn.ModuleList):
        def forward(self, x):
            return self[1](x)

    linear = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8))
    rows = torch.randn(4, 64)
    linear_work = (2 * 4 * (64 * 32 + 32 * 8), BYTES * (65 * 32 + 33 * 8), "fp32")
    # Of an embedding the rows of the tokens, of a mixture the expert that is used.
    embedding = nn.Sequential(nn.Embedding(1000, 16), nn.Linear(16, 4))
    experts = Routed(nn.Linear(8, 8, bias=False) for _ in range(4))
    encoder = nn.TransformerEncoderLayer(16, 2, dim_feedforward=32, batch_first=True).eval()
    products = 2 * 5 * (16 * 48 + 16 * 16 + 2 * 16 * 32)
    attention = 2 * 2 * 5 * 5 * (8 + 8)
    sizes = BYTES * sum(x.numel() for x in encoder.parameters())
    for name, module, inputs, expected in (
        ("linear", linear, (rows,), linear_work),
        ("bf16", nn.Linear(8, 8).bfloat16(), (rows[:, :8].bfloat16(),), (512, 144, "bf16")),
        ("conv", nn.Conv2d(3, 8, 3), (torch.randn(1, 3, 8, 8),), (15552, BYTES * 224, "fp32")),
        ("embedding", embedding, (torch.tensor([[1, 2]]),), (256, BYTES * (32 + 68), "fp32")),
        ("experts", experts, (rows[:, :8],), (2 * 4 * 64, BYTES * 64, "fp32")),
        ("encoder", encoder, (torch.randn(1, 5, 16),), (products + attention, sizes, "fp32")),
        ("exported", torch.export.export(linear, (rows,)).module(), (rows,), linear_work),
        # What cannot be counted is absent, and not 0.
        ("no weight", nn.Softmax(-1), (rows,), (None, None, None)),
        ("lstm", nn.LSTM(8, 8), (torch.randn(3, 2, 8),), (None, BYTES * 576, None)),
        ("script", torch.jit.script(linear), (rows,), (None, None, None)),
    ):
        assert tuple(work_of(module, *inputs)) == expected, name


def test_decoder_moves_its_weights_and_its_cache_and_computes_what_its_attention_needs():
    batch, context = 2, 64
    cpu = torch.device("cpu")
    for phase, tokens, pairs in (
        ("decode", 1, context),
        ("prefill", context, context * (context + 1) // 2),
    ):
        spec = Spec("decoder", model=f"small/{phase}", context_tokens=context)
        workload = models.load(spec, 0).on(cpu)
        staged = workload.staged(workload.inputs(batch), cpu, batch)
        found = work_of(workload.module, *staged.args[:1], state=staged.args[1:])
        shape = workload.module.shape
        of_layers = sum(x.numel() for x in workload.module.blocks.parameters() if x.dim() > 1)
        # The head computes the logits of the last token only.
        products = 2 * batch * (tokens * of_layers + shape.vocabulary * shape.width)
        attention = 4 * batch * shape.layers * shape.heads * shape.head * pairs
        assert found.flop_per_pass == products + attention, phase
        held = sum(x.numel() for x in workload.module.parameters())
        cache = batch * context * 2 * shape.layers * shape.kv_heads * shape.head
        positions = 2 * tokens * shape.head
        assert found.bytes_per_pass == pytest.approx(BYTES * (held + cache + positions), rel=1e-3)
