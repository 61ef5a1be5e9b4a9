"""The work of one forward pass: floating-point operations, and bytes of weights and state.

FLOP are those of matrix products, convolutions and attention, as torch's FlopCounterMode counts
them, a multiplication and an addition as two; of causal attention only the pairs that it needs.
Bytes are the parts of weights and state (a KV cache) that the pass reads or writes, each once: rows
of an embedding that no token selects, and experts that no token is routed to, are not among them.
Activations are not counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Optional

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

# Operations that read selected rows of their input, and that write selected rows of it.
GATHERS = frozenset({"embedding", "index", "index_select", "gather", "_embedding_bag"})
SCATTERS = frozenset({"index_put_", "index_copy_", "scatter_", "masked_scatter_"})
# Parts of the names of operations that compute much; one that FlopCounterMode does not know leaves
# the sum unknown.
_HEAVY = re.compile(
    r"(badd|add|b)?(mm|mv)|v?dot|conv(olution)?\d?d?|attention|transformer|(tri)?linear|linalg|cdist"
    r"|rnn|lstm|fft"
)
_ATTENTION = re.compile(r"_scaled_dot_product_(?!.*backward)\w*attention\w*")
# Names in the catalogue's columns, the slowest first.
PRECISIONS = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
_SPEED = ("fp32", "tf32", "bf16", "fp16")


class PassWork(NamedTuple):
    """The work of a pass; each is None where it cannot be counted.

    Attributes:
        flop_per_pass: Floating-point operations.
        bytes_per_pass: Bytes of weights and state.
        flop_precision: Fastest type in which counted operations compute: "fp32", "tf32", "fp16", "bf16",
            or torch's name of another one.
    """

    flop_per_pass: Optional[int] = None  # noqa: UP045 - evaluated on Python 3.9
    bytes_per_pass: Optional[int] = None  # noqa: UP045 - as above
    flop_precision: Optional[str] = None  # noqa: UP045 - as above


def count_pass(
    module: nn.Module, run: Callable[[], object], state: Iterable[torch.Tensor]
) -> PassWork:
    """Run a pass once, and return its work.

    TorchScript programs are not counted: the fused operations of an optimized one have no formula.

    Args:
        module: The model, not compiled, whose weights the pass uses.
        run: One pass. Its tensors must not be those of inference mode, whose operations are not
            divided into those that have a formula.
        state: Tensors that the pass reads and writes beside the weights.

    Raises:
        Exception: Any error of the pass, or of a version of torch that cannot count it.
    """
    if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
        return PassWork()
    from torch.utils.flop_counter import FlopCounterMode, flop_registry  # noqa: PLC0415 - newer than torch 2.0

    trace = _Trace([*module.parameters(), *module.buffers(), *state], flop_registry)
    with _no_fused_encoder(), FlopCounterMode(display=False) as counter, trace:
        run()
    flop = int(counter.get_total_flops()) + trace.further_flop
    is_counted = flop > 0 and not trace.is_incomplete
    return PassWork(
        flop if is_counted else None,
        trace.moved_bytes or None,
        trace.precision if is_counted else None,
    )


@contextmanager
def _no_fused_encoder() -> Iterator[None]:
    """Make torch's encoder layers run as products that have a formula, not as one operation."""
    mha: Any = torch.backends.mha
    before = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        mha.set_fastpath_enabled(before)


class _Trace(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch does not type it
    """Follows the operations of a pass.

    Args:
        held: Weights and state.
        formulas: The operations that FlopCounterMode counts.

    Attributes:
        further_flop: Correction of its count: attention that it does not know, and the half of
            causal attention that is not computed.
        is_incomplete: Whether an operation without a formula may have computed much.
    """

    def __init__(self, held: Iterable[torch.Tensor], formulas: dict[Any, Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # as above
        self.further_flop = 0
        self.is_incomplete = False
        self._formulas = formulas
        self._precisions: set[str] = set()
        self._sizes = {_address(x): x.untyped_storage().nbytes() for x in held if x.numel()}
        self._moved: dict[int, dict[tuple[int, int], int]] = {}

    @property
    def moved_bytes(self) -> int:
        """Bytes of weights and state that were read or written, each counted once."""
        return sum(
            min(self._sizes[address], sum(parts.values())) for address, parts in self._moved.items()
        )

    @property
    def precision(self) -> str | None:
        """The fastest type of the counted operations; another type than those of _SPEED first."""
        known = [name for name in _SPEED if name in self._precisions]
        others = sorted(self._precisions - set(_SPEED))
        return next(iter([*others, *reversed(known)]), None)

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - torch's operation
        _types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - its result
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        self._count_flop(func, args, kwargs)
        self._count_bytes(func, list(_tensors((args, kwargs))), list(_tensors(out)))
        return out

    def _count_flop(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:  # noqa: ANN401 - as above
        packet, name = func._overloadpacket, func._schema.name.partition("::")[2]  # noqa: SLF001 - no other access
        if _ATTENTION.fullmatch(name):
            self._count_attention(func, args, kwargs, is_known=packet in self._formulas)
        elif packet not in self._formulas:
            words = [name, *name.strip("_").split("_")]
            self.is_incomplete |= func.namespace not in {"aten", "prim", "prims"} or any(
                _HEAVY.fullmatch(word) for word in words
            )
            return
        first = next(_tensors((args, kwargs)))
        is_convolution = "conv" in name
        self._precisions.add(_precision(first, is_convolution=is_convolution))

    def _count_attention(
        self,
        func: Any,  # noqa: ANN401 - as above
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        is_known: bool,
    ) -> None:
        names = [argument.name for argument in func._schema.arguments]  # noqa: SLF001 - as above
        given = {**dict(zip(names, args)), **kwargs}
        query, key, value = given["query"], given["key"], given["value"]
        tokens, context = query.shape[-2], key.shape[-2]
        pairs = tokens * context
        needed = pairs
        if given.get("is_causal"):
            needed = sum(min(position + 1, context) for position in range(tokens))
        items = query.shape[:-2].numel() * 2 * (query.shape[-1] + value.shape[-1])
        self.further_flop += items * (needed - (pairs if is_known else 0))

    def _count_bytes(self, func: Any, given: list[torch.Tensor], out: list[torch.Tensor]) -> None:  # noqa: ANN401 - as above
        name, is_mutable = func._schema.name.partition("::")[2], func._schema.is_mutable  # noqa: SLF001 - as above
        results = {_address(x) for x in out}
        for position, x in enumerate(given):
            address = _address(x)
            is_view = address in results and not is_mutable
            if address not in self._sizes or is_view or (name in SCATTERS and position == 0):
                continue
            size = x.numel() * x.element_size()
            if name in GATHERS and position == 0:
                size = min(size, sum(y.numel() * y.element_size() for y in out))
            self._moved.setdefault(address, {})[x.data_ptr(), size] = size


def _tensors(values: object) -> Iterator[torch.Tensor]:
    return (x for x in tree_flatten(values)[0] if isinstance(x, torch.Tensor))


def _address(x: torch.Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _precision(x: torch.Tensor, *, is_convolution: bool) -> str:
    """Return the type in which an operation on a tensor multiplies."""
    if x.dtype == torch.float32 and x.device.type == "cuda":
        backend = torch.backends.cudnn if is_convolution else torch.backends.cuda.matmul
        return "tf32" if backend.allow_tf32 else "fp32"
    return PRECISIONS.get(x.dtype, str(x.dtype).partition(".")[2])
