"""The configuration of a load curve."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from costprobe.core.config.fields import Pause, Section, Share, WindowDuration, key

MAX_TOKENS: Final = 131_072
# Shares of the closed loop's highest rate at which the open loop is measured by default.
RATE_SHARES: Final = (0.25, 0.5, 0.7, 0.8, 0.9)
# A curve ends when the latency of production exceeds its level before the curve by this factor.
LATENCY_RISE_MAX: Final = 1.5
# How often its length a window may last until it has enough requests.
WINDOW_TIMES: Final = 3
_NUMBER: Final = r"\s*(\d{1,6}(?:\.\d{1,6})?)\s*"
_DISTRIBUTION: Final = re.compile(rf"\s*([a-z]+)\({_NUMBER},{_NUMBER}\)\s*")
# The parameters of each distribution, in tokens but for sigma.
_PARAMETERS: Final[Mapping[str, tuple[str, str]]] = {
    "uniform": ("low", "high"),
    "normal": ("mean", "sd"),
    "lognormal": ("median", "sigma"),
}
_LARGEST: Final = {"sigma": 5.0}


def length_document(length: int | str) -> dict[str, Any]:
    """Return a length as the worker reads it: its kind and parameters.

    Args:
        length: A number of tokens, or a distribution such as "uniform(64, 512)".

    Raises:
        ValueError: It is neither; the message gives the format.
    """
    if isinstance(length, int):
        return {"kind": "fixed", "value": length}
    found = _DISTRIBUTION.fullmatch(length)
    if found is None or found[1] not in _PARAMETERS:
        raise ValueError(
            'write a number of tokens, or "uniform(LOW, HIGH)", "normal(MEAN, SD)" or'
            ' "lognormal(MEDIAN, SIGMA)"'
        )
    names = _PARAMETERS[found[1]]
    parameters = {name: float(text) for name, text in zip(names, found.groups()[1:], strict=True)}
    for name, value in parameters.items():
        if value > _LARGEST.get(name, MAX_TOKENS) or (
            name in ("low", "mean", "median") and value < 1
        ):
            largest = _LARGEST.get(name, MAX_TOKENS)
            raise ValueError(f"{name} of {found[1]} is from 1 to {largest:g}")
    if parameters.get("low", 0.0) > parameters.get("high", 0.0):
        raise ValueError("low of uniform must not be above high")
    return {"kind": found[1], **parameters}


def _checked(value: int | str) -> int | str:
    length_document(value)
    return value


Length = Annotated[
    Annotated[int, Field(strict=True, ge=1, le=MAX_TOKENS)] | Annotated[str, Field(max_length=60)],
    AfterValidator(_checked),
]


class LoadConfig(Section):
    """The load curve that `costprobe probe NAME --load` measures."""

    removed: ClassVar = {
        "defer_at_most": "a load curve waits for 30 s",
        "latency_rise_max": "a load curve ends when the latency of production is 1.5 times its level before",
        "max_errors": "a loop ends when more than 5 % of the requests failed",
        "min_gain": "the closed loop ends when the throughput has risen by less than 5 %",
        "window_max": "a window is extended up to three times its length",
    }

    concurrencies: (
        Annotated[tuple[Annotated[int, Field(ge=1, le=1024)], ...], Field(max_length=32)] | None
    ) = Field(
        None,
        description=(
            "Requests in flight at each point of the closed loop; by default 1, 2, 4, ... up to"
            " `concurrency_max`. An empty list measures no closed loop."
        ),
        examples=[[1, 4, 16, 64]],
    )
    concurrency_max: int = Field(
        128, ge=1, le=1024, description="Most requests in flight, in the open loop too."
    )
    rates: (
        Annotated[tuple[Annotated[float, Field(gt=0, le=100_000)], ...], Field(max_length=32)]
        | None
    ) = Field(
        None,
        description=(
            "Mean requests per second at each point of the open loop; by default 25, 50, 70, 80 and"
            " 90 % of the closed loop's highest. An empty list measures no open loop."
        ),
        examples=[[0.5, 1, 2]],
    )
    warmup_s: Pause = key(
        "warmup", 5.0, description="Time under load before the window of each point."
    )
    window_s: WindowDuration = key(
        "window",
        20.0,
        description=(
            "Window of a point; it is extended up to three times this if fewer than 64 requests have"
            " ended in it."
        ),
        examples=["20s"],
    )
    tokens_in: Length | None = Field(
        None,
        description=(
            'Length of prompts in tokens: a number, "uniform(LOW, HIGH)", "normal(MEAN, SD)" or'
            ' "lognormal(MEDIAN, SIGMA)"; by default the probe\'s prompt is sent.'
        ),
        examples=["uniform(64, 512)"],
    )
    tokens_out: Length | None = Field(
        None,
        description="Length of answers in tokens, likewise; by default at most `max_tokens`.",
        examples=["lognormal(128, 0.5)"],
    )
    ignore_eos: bool = Field(
        True,
        description=(
            "Whether the server generates `tokens_out` tokens even if the model ends earlier; an"
            " extension of the API that vLLM, SGLang and llama.cpp have."
        ),
    )
    prompts: Path | None = Field(
        None,
        description=(
            'File of prompts, one a line: {"prompt": "text", "output_tokens": 128}; sent in'
            " random order."
        ),
        examples=["/etc/costprobe/prompts.jsonl"],
    )
    shared_prefix: Share | None = Field(
        None,
        description=(
            "Share of each prompt that all have in common, which a prefix cache may answer; the"
            " rest differs."
        ),
        examples=["50%"],
    )
    when_busy: Literal["run", "skip", "defer"] = Field(
        "defer",
        description=(
            "What a load curve does while others use the device: wait before it is skipped, be skipped"
            " at once, or run."
        ),
        examples=["defer"],
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> LoadConfig:
        if self.prompts is not None and (self.tokens_in is not None or self.shared_prefix):
            raise ValueError("prompts are sent as they are: remove tokens_in and shared_prefix")
        if self.concurrencies == () and not self.rates:
            raise ValueError("without concurrencies the open loop needs rates; write some")
        return self

    @property
    def window_max_s(self) -> float:
        """Longest window of a point in seconds."""
        return WINDOW_TIMES * self.window_s

    @property
    def closed_steps(self) -> tuple[int, ...]:
        """Requests in flight at each point of the closed loop, in ascending order."""
        if self.concurrencies is not None:
            return tuple(sorted(set(self.concurrencies)))
        doubled = (1 << exponent for exponent in range(self.concurrency_max.bit_length()))
        return tuple(step for step in doubled if step <= self.concurrency_max)
