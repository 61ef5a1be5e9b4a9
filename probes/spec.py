"""What is to be loaded, as an operator said it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Optional


class Spec(NamedTuple):
    """A model and its inputs.

    Attributes:
        kind: A built-in model's name, "module", or a source.
        module: "package.mod:factory" where kind is "module".
        model: What a source loads: a name, or a path.
        weights: A file with the model's weights.
        inputs: One item's inputs, for a source that does not know them: for each its `shape`
            without the batch, `dtype`, `below` for whole numbers, and `name` for a keyword.
        dtype: What floating weights and inputs are brought to; None leaves them as they are.
    """

    kind: str
    module: Optional[str] = None  # noqa: UP045 - evaluated on Python 3.9
    model: Optional[str] = None  # noqa: UP045 - as above
    weights: Optional[str] = None  # noqa: UP045 - as above
    inputs: tuple[Mapping[str, Any], ...] = ()
    dtype: Optional[str] = None  # noqa: UP045 - as above

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> Spec:
        """The part of a worker's request that says what to load."""
        return cls(
            kind=str(request["kind"]),
            module=request.get("module"),
            model=request.get("model"),
            weights=request.get("weights"),
            inputs=tuple(request.get("inputs") or ()),
            dtype=request.get("dtype"),
        )

    @property
    def name(self) -> str:
        """What the operator calls it."""
        return self.module or (f"{self.kind}:{self.model}" if self.model else self.kind)
