"""The configured model of a probe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Optional


class Spec(NamedTuple):
    """A configured model and its inputs.

    Attributes:
        kind: Key of `sources.registry.SOURCES`.
        module: "package.mod:factory" if kind is "module".
        model: Name or path for the model source.
        weights: File with the model's weights.
        inputs: Inputs of one item, for a source that cannot derive them: for each `shape` without
            the batch, `dtype`, `below` for integers, and `name` for a keyword argument.
        dtype: Type of floating-point weights and inputs; None keeps their own.
        context_tokens: Tokens of a decoder's prompt or context; None for its default.
    """

    kind: str
    module: Optional[str] = None  # noqa: UP045 - evaluated on Python 3.9
    model: Optional[str] = None  # noqa: UP045 - as above
    weights: Optional[str] = None  # noqa: UP045 - as above
    inputs: tuple[Mapping[str, Any], ...] = ()
    dtype: Optional[str] = None  # noqa: UP045 - as above
    context_tokens: Optional[int] = None  # noqa: UP045 - as above

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> Spec:
        """Read the spec from a request to the worker."""
        values: dict[str, Any] = {name: request.get(name) for name in cls._fields}
        return cls(**{**values, "inputs": tuple(request.get("inputs") or ())})

    @property
    def name(self) -> str:
        """The name in the configuration."""
        return self.module or (f"{self.kind}:{self.model}" if self.model else self.kind)
