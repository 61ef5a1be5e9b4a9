"""Device time and energy of a prompt token and of a generated token, from measured windows.

In each window a server is under constant load by requests of one length. Its device time is

    requests x prompt + tokens in x token_in + decoded x (token_out + context x context_token)
        + decode steps x step

where `decoded` are the generated tokens without the first of each request, which the prefill
generates, and `context` is the mean length that a decode step reads. These are the terms of the
roofline of prefill and decode (Pope et al., "Efficiently Scaling Transformer Inference", 2022), and the
time of a step whatever it decodes: with chunked prefill prompt tokens are computed in the same steps, and a
prefill-heavy load alone would count that time as theirs. Where every step under load has prompt tokens, only
requests that are served one at a time show the time of a step without them. The coefficients
(`nonnegative_fit`) hold for the concurrency of the windows under load. Joules are divided in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from costprobe.domain.costing.serving.nonnegative_fit import ConfidenceInterval, nonnegative_fit
from costprobe.domain.costing.serving.served import Counts
from costprobe.domain.costing.serving.token_weights import Weights, mean_context

TERMS: Final = 5
# Answers of a prefill-heavy load are shorter by this factor.
SHORT_ANSWER: Final = 10


class LengthMix(NamedTuple):
    """Mean lengths of the requests of a load, in tokens."""

    tokens_in: float
    tokens_out: float


@dataclass(frozen=True, slots=True)
class CalibrationWindow:
    """A window under constant load.

    Attributes:
        requests: Requests served in it, by their shares within it.
        tokens_in: Prompt tokens that were computed.
        tokens_out: Generated tokens.
        device_s: Device-seconds.
        energy_j: Joules of the devices; None if unknown.
        decode_steps: Steps of the model that decode; 0 if unknown.
    """

    requests: float
    tokens_in: float
    tokens_out: float
    device_s: float
    energy_j: float | None = None
    decode_steps: float = 0.0

    @property
    def decoded(self) -> float:
        """Generated tokens but the first of each request."""
        return max(0.0, self.tokens_out - self.requests)

    @property
    def terms(self) -> list[float]:
        """Return what the coefficients are multiplied with."""
        context = (self.tokens_in + self.tokens_out / 2) / self.requests
        steps = self.decode_steps
        return [self.requests, self.tokens_in, self.decoded, self.decoded * context, steps]

    def distance(self, mix: LengthMix) -> float:
        """Return how far its lengths are from others, in logarithms."""
        lengths = self.tokens_in / self.requests, self.tokens_out / self.requests
        return math.fsum(abs(math.log(own / x)) for own, x in zip(lengths, mix, strict=True))


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """Device-seconds of the parts of a request, at one concurrency.

    Attributes:
        prompt_s: Of a prompt, whatever its length.
        token_in_s: Of each prompt token that is computed.
        token_out_s: Of each generated token but the first.
        context_token_s: Of each token of context that the step of a generated token reads.
        mix: The lengths for which they were measured.
    """

    prompt_s: float
    token_in_s: float
    token_out_s: float
    context_token_s: float
    mix: LengthMix

    def weights(self, counts: Counts) -> Weights:
        """Return the device-seconds of a computed prompt token and of a generated token.

        Args:
            counts: What a server served; without requests the lengths are those of the calibration.
        """
        computed = max(0.0, (counts.tokens_in or 0.0) - (counts.cached_tokens or 0.0))
        tokens_out, requests = counts.tokens_out or 0.0, counts.requests or 0.0
        prompts = requests / computed if requests and computed else 1 / self.mix.tokens_in
        firsts = requests / tokens_out if requests and tokens_out else 1 / self.mix.tokens_out
        context = mean_context(counts) if requests else self.mix.tokens_in + self.mix.tokens_out / 2
        decoded_s = self.token_out_s + context * self.context_token_s
        return Weights(
            self.token_in_s + self.prompt_s * prompts, decoded_s * max(0.0, 1.0 - firsts)
        )


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a prompt token and a generated token take, at one concurrency.

    Attributes:
        times: Coefficients of the device time.
        token_in_s: Device-seconds of a prompt token at the calibrated lengths.
        token_out_s: Device-seconds of a generated token at the calibrated lengths.
        token_in_j: Joules of a prompt token; None where energy is unknown.
        token_out_j: Joules of a generated token, likewise.
    """

    times: TokenTimes
    token_in_s: ConfidenceInterval
    token_out_s: ConfidenceInterval
    token_in_j: ConfidenceInterval | None = None
    token_out_j: ConfidenceInterval | None = None


def times_of(coefficients: Sequence[float], mix: LengthMix) -> TokenTimes:
    """Return coefficients, in the order of the fields of `TokenTimes`, with their names."""
    prompt_s, token_in_s, token_out_s, context_token_s = coefficients
    return TokenTimes(prompt_s, token_in_s, token_out_s, context_token_s, mix)


def calibration_mixes(mix: LengthMix) -> tuple[LengthMix, ...]:
    """Return the lengths of the loads of a calibration, around those of production.

    One has those of production. Two are prefill-heavy and two decode-heavy, each with a prompt as in
    production and one of half its length. The halves separate the prompt's fixed part from its tokens,
    and generated tokens from what their context adds. A step takes as long for few prompt tokens as for
    one, so that the time of a prompt is not linear in its length: three of the five have that of
    production.

    Args:
        mix: Mean lengths in production.
    """
    tokens_in, tokens_out = mix
    short = max(2.0, round(tokens_out / SHORT_ANSWER))
    return (
        mix,
        LengthMix(tokens_in, short),
        LengthMix(max(1.0, round(tokens_in / 2)), short),
        LengthMix(max(1.0, round(tokens_in / 2)), max(2.0, round(tokens_out * 2))),
        LengthMix(tokens_in, max(2.0, round(tokens_out * 2))),
    )


def calibrated(
    windows: Sequence[CalibrationWindow],
    mix: LengthMix,
    one_at_a_time: Sequence[CalibrationWindow] = (),
) -> Calibration:
    """Divide the device time and energy of windows between prompt tokens and generated tokens.

    Args:
        windows: Windows of at least two different mixes, more of them than terms.
        mix: The lengths for which the figures per token are returned.
        one_at_a_time: Windows in which each request was served alone.

    Raises:
        ValueError: There are too few windows, or they do not tell the two kinds of tokens apart.
    """
    if len(windows) <= TERMS:
        raise ValueError(f"{len(windows)} windows are too few: a calibration needs {TERMS + 1}")
    fitted = [*windows, *one_at_a_time]
    if any(min(x.requests, x.tokens_in, x.tokens_out, x.device_s) <= 0 for x in fitted):
        raise ValueError("a window has no requests, no tokens or no device time")
    seconds = nonnegative_fit([x.terms for x in fitted], [x.device_s for x in fitted])
    energies_j = [x.energy_j for x in fitted if x.energy_j is not None and x.energy_j > 0]
    joules = None
    if len(energies_j) == len(fitted):
        joules = nonnegative_fit([x.terms for x in fitted], energies_j)
    context = mix.tokens_in + mix.tokens_out / 2
    decoded = max(0.0, 1.0 - 1.0 / mix.tokens_out)
    nearest = min(windows, key=lambda x: x.distance(mix))
    steps = nearest.decode_steps / nearest.decoded if nearest.decoded else 0.0
    token_in = [1.0 / mix.tokens_in, 1.0, 0.0, 0.0, 0.0]
    token_out = [0.0, 0.0, decoded, decoded * context, decoded * steps]
    prompt_s, token_in_s, token_out_s, context_token_s, step_s = seconds.values
    token_out_s += steps * step_s
    found = Calibration(
        times_of((prompt_s, token_in_s, token_out_s, context_token_s), mix),
        seconds.interval(token_in),
        seconds.interval(token_out),
        joules and joules.interval(token_in),
        joules and joules.interval(token_out),
    )
    if found.token_in_s.value <= 0 or found.token_out_s.value <= 0:
        raise ValueError(
            "the windows do not tell prompt tokens and generated tokens apart: use longer windows,"
            " or an idle server"
        )
    return found
