"""The weight of a prompt token, fresh or cached, and of a generated one: by model size, or calibrated.

Where the server does not measure it: prefill is limited by compute and decode by memory
bandwidth, so that the ratio of the two depends on the model's size and on how many requests
decode at a time. Source: the roofline model as in Pope et al., "Efficiently Scaling Transformer
Inference" (2022): 2 x parameters FLOP for a token, and for a decode step the weights and the
batch's KV cache are read once.

A calibration has device time and energy from measured windows. In each window a server is under
constant load by requests of one length. Its device time is

    requests x prompt + tokens in x token_in + decoded x (token_out + context x context_token)
        + decode steps x step + cached x cached_token

where `decoded` are the generated tokens without the first of each request, which the prefill
generates, and `context` is the mean length that a decode step reads. These are the terms of the
roofline of prefill and decode (Pope et al., 2022), and the time of a step whatever it decodes:
with chunked prefill prompt tokens are computed in the same steps, and a prefill-heavy load alone
would count that time as theirs. Where every step under load has prompt tokens, only requests that
are served one at a time show the time of a step without them. `cached` are the prompt tokens that a
prefix cache answered: their KV is loaded, and the computed ones attend over them. Prompts of which
half is cached show their time, beside prompts of half the length. The coefficients (non-negative
least squares of `costprobe.core.statistics`) hold for the concurrency of the windows under load.
Joules are divided in the same way.

A calibration is stored as a row. Where none is in force, the reason is given. The load in
production is the lengths of requests, and how many are in flight.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from costprobe.core.columns import number
from costprobe.core.records import NS_PER_S, FieldValue, Point
from costprobe.core.schema import make_point
from costprobe.core.statistics import ConfidenceInterval, nonnegative_fit
from costprobe.serving.meter import Counts, ServedWindow
from costprobe.serving.settings import ModelSize, ServiceConfig, size_of

logger = logging.getLogger(__name__)

BILLION: Final = 1e9
# NVIDIA H100 SXM data sheet: dense bf16 FLOP/s and bytes/s. Only their ratio matters.
PEAK_FLOP_PER_S: Final = 989e12
PEAK_BYTES_PER_S: Final = 3.35e12
# Shares of the peaks that serving engines reach in prefill and in decode: assumptions.
PREFILL_EFFICIENCY: Final = 0.5
DECODE_EFFICIENCY: Final = 0.8
BYTES_PER_PARAMETER: Final = 2
# KV cache of a token of Llama 3.1 8B: 32 layers x 8 heads x 128 x key and value x 2 bytes. The
# exponent fits its family: 28 layers at 3 billion parameters, 80 at 70, 126 at 405.
KV_BYTES_AT_8B: Final = 131_072
KV_EXPONENT: Final = 0.4
# Where the server does not report how many requests it decodes at a time.
DEFAULT_BATCH: Final = 32.0
MAX_BATCH: Final = 1024.0
# Where neither configuration nor name states the model's size.
DEFAULT_SIZE_B: Final = 8.0
# Context in tokens where requests are not counted, and the longest that is plausible.
DEFAULT_CONTEXT: Final = 1000.0
MAX_CONTEXT: Final = 1e6
TERMS: Final = 5
# Part of the prompt that the requests of a calibration with a cache have in common.
CACHED_SHARE: Final = 0.5
# Answers of a prefill-heavy load are shorter by this factor.
SHORT_ANSWER: Final = 10
MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Weights:
    """Relative device time of tokens.

    Attributes:
        token_in: Of a prompt token that was not cached.
        token_out: Of a generated token.
        cached: Of a prompt token that a cache answered; 0 if it was not measured.
    """

    token_in: float
    token_out: float
    cached: float = 0.0


@dataclass(frozen=True, slots=True)
class TokenWeighing:
    """How the tokens of a service are weighed.

    Attributes:
        configured: Weights that the operator gave; they apply to all models.
        size: Size of the models that the operator gave; None to read it from their names.
        batch: Requests that a server decodes at a time while it is busy; None where unknown.
        calibrated: Weights by a calibration of the service's only model, for counts; None without.
    """

    configured: Weights | None = None
    size: ModelSize | None = None
    batch: float | None = None
    calibrated: Callable[[Counts], Weights] | None = None

    def weights(self, model: str, counts: Counts) -> Weights:
        """Return the weights of a model's tokens.

        Args:
            model: Its name at the server; "" where there is none.
            counts: What it served, for the length of its contexts.
        """
        if self.calibrated is not None:
            return self.calibrated(counts)
        if self.configured is not None:
            return self.configured
        size = self.size or size_of(model) or ModelSize(DEFAULT_SIZE_B, DEFAULT_SIZE_B)
        batch = DEFAULT_BATCH if self.batch is None else min(MAX_BATCH, max(1.0, self.batch))
        return estimated_weights(size, batch, mean_context(counts))


def estimated_weights(size: ModelSize, batch: float, context: float) -> Weights:
    """Estimate the device seconds of tokens by the roofline of one H100.

    Args:
        size: Size of the model.
        batch: Requests that are decoded at a time, at least 1.
        context: Mean tokens of a request that a decode step reads from the KV cache.
    """
    flop_per_s = PEAK_FLOP_PER_S * PREFILL_EFFICIENCY
    bytes_per_s = PEAK_BYTES_PER_S * DECODE_EFFICIENCY
    token_in = 2 * size.active_b * BILLION / flop_per_s
    # Experts that at least one of the batch's tokens uses; of a dense model all parameters.
    touched_b = size.total_b * (1 - (1 - size.active_b / size.total_b) ** batch)
    reading_s = touched_b * BILLION * BYTES_PER_PARAMETER / bytes_per_s
    kv_bytes = KV_BYTES_AT_8B * (size.active_b / DEFAULT_SIZE_B) ** KV_EXPONENT
    step_s = max(reading_s, batch * token_in) + batch * context * kv_bytes / bytes_per_s
    return Weights(token_in, step_s / batch)


def mean_context(counts: Counts) -> float:
    """Return the mean context of a generated token: the prompt, and half of the answer."""
    if not counts.requests:
        return DEFAULT_CONTEXT
    tokens = (counts.tokens_in or 0.0) + (counts.tokens_out or 0.0) / 2
    return min(MAX_CONTEXT, tokens / counts.requests)


def decode_batch(counts: Counts, busy_s: float, servers: int) -> float | None:
    """Return the mean number of requests that a server decodes at a time, by Little's law.

    Args:
        counts: Of all models of all servers.
        busy_s: Seconds in which the devices were busy.
        servers: Number of servers that share the work.

    Returns:
        None where the servers do not count the decode time of requests.
    """
    if not counts.decode_request_s or busy_s <= 0:
        return None
    return counts.decode_request_s / busy_s / servers


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
        cached_tokens: Further prompt tokens, which a prefix cache answered.
    """

    requests: float
    tokens_in: float
    tokens_out: float
    device_s: float
    energy_j: float | None = None
    decode_steps: float = 0.0
    cached_tokens: float = 0.0

    @property
    def decoded(self) -> float:
        """Generated tokens but the first of each request."""
        return max(0.0, self.tokens_out - self.requests)

    @property
    def terms(self) -> list[float]:
        """Return what the coefficients are multiplied with."""
        context = (self.tokens_in + self.cached_tokens + self.tokens_out / 2) / self.requests
        decode = [self.decoded, self.decoded * context, self.decode_steps]
        return [self.requests, self.tokens_in, *decode, self.cached_tokens]

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
        cached_token_s: Of each prompt token that a cache answered; 0 if it was not measured.
    """

    prompt_s: float
    token_in_s: float
    token_out_s: float
    context_token_s: float
    mix: LengthMix
    cached_token_s: float = 0.0

    def weights(self, counts: Counts) -> Weights:
        """Return the device-seconds of a computed prompt token and of a generated token.

        Args:
            counts: What a server served; without requests the lengths are those of the calibration.
        """
        computed = counts.fresh_tokens
        tokens_out, requests = counts.tokens_out or 0.0, counts.requests or 0.0
        prompts = requests / computed if requests and computed else 1 / self.mix.tokens_in
        firsts = requests / tokens_out if requests and tokens_out else 1 / self.mix.tokens_out
        context = mean_context(counts) if requests else self.mix.tokens_in + self.mix.tokens_out / 2
        decoded_s = self.token_out_s + context * self.context_token_s
        return Weights(
            self.token_in_s + self.prompt_s * prompts,
            decoded_s * max(0.0, 1.0 - firsts),
            self.cached_token_s,
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
        cached_token_s: Device-seconds of a cached prompt token; None where no window had any.
        cached_token_j: Joules of one, likewise.
    """

    times: TokenTimes
    token_in_s: ConfidenceInterval
    token_out_s: ConfidenceInterval
    token_in_j: ConfidenceInterval | None = None
    token_out_j: ConfidenceInterval | None = None
    cached_token_s: ConfidenceInterval | None = None
    cached_token_j: ConfidenceInterval | None = None


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
    others: Sequence[CalibrationWindow] = (),
) -> Calibration:
    """Divide the device time and energy of windows between prompt tokens and generated tokens.

    Args:
        windows: Windows of at least two different mixes, more of them than terms.
        mix: The lengths for which the figures per token are returned.
        others: Windows in which each request was served alone, or had cached tokens.

    Raises:
        ValueError: There are too few windows, or they do not tell the two kinds of tokens apart.
    """
    if len(windows) <= TERMS:
        raise ValueError(f"{len(windows)} windows are too few: a calibration needs {TERMS + 1}")
    fitted = [*windows, *others]
    if any(min(x.requests, x.tokens_in, x.tokens_out, x.device_s) <= 0 for x in fitted):
        raise ValueError("a window has no requests, no tokens or no device time")
    kept = [TERMS] if any(x.cached_tokens for x in others) else []
    terms = [x.terms for x in fitted]
    seconds = nonnegative_fit(terms, [x.device_s for x in fitted], kept)
    energies_j = [x.energy_j for x in fitted if x.energy_j is not None and x.energy_j > 0]
    joules = None
    if len(energies_j) == len(fitted):
        joules = nonnegative_fit(terms, energies_j, kept)
    context = mix.tokens_in + mix.tokens_out / 2
    decoded = max(0.0, 1.0 - 1.0 / mix.tokens_out)
    nearest = min(windows, key=lambda x: x.distance(mix))
    steps = nearest.decode_steps / nearest.decoded if nearest.decoded else 0.0
    token_in = [1.0 / mix.tokens_in, 1.0, 0.0, 0.0, 0.0, 0.0]
    token_out = [0.0, 0.0, decoded, decoded * context, decoded * steps, 0.0]
    cached = [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    prompt_s, token_in_s, token_out_s, context_token_s, step_s, _ = seconds.values
    token_out_s += steps * step_s
    cached_token_s = seconds.interval(cached) if kept else None
    found = Calibration(
        TokenTimes(
            *(prompt_s, token_in_s, token_out_s, context_token_s, mix),
            cached_token_s.value if cached_token_s else 0.0,
        ),
        seconds.interval(token_in),
        seconds.interval(token_out),
        joules and joules.interval(token_in),
        joules and joules.interval(token_out),
        cached_token_s,
        joules.interval(cached) if kept and joules else None,
    )
    if found.token_in_s.value <= 0 or found.token_out_s.value <= 0:
        raise ValueError(
            "the windows do not tell prompt tokens and generated tokens apart: use longer windows,"
            " or an idle server"
        )
    return found


@dataclass(frozen=True, slots=True)
class StoredCalibration:
    """The newest calibration of a service.

    Attributes:
        times: Device-seconds of its tokens.
        time_ns: UTC in ns of the measurement.
        probe: The probe that measured it.
        fingerprint: That of the probe's server and model then.
        in_flight: Requests in flight.
    """

    times: TokenTimes
    time_ns: int
    probe: str
    fingerprint: str
    in_flight: int

    def is_stale(self, fingerprint: str | None) -> bool:
        """Return whether server or model have changed since.

        Args:
            fingerprint: That of the newest run of the probe; None if there is none.
        """
        return fingerprint is not None and fingerprint != self.fingerprint


def calibration_point(
    found: Calibration,
    tags: Mapping[str, str],
    time_ns: int,
    *,
    in_flight: int,
    windows: int,
    fingerprint: str,
) -> Point:
    """Return the row of a calibration.

    Args:
        found: The calibration.
        tags: `service`, `probe`, `device`, host and static labels.
        time_ns: UTC in ns of its end.
        in_flight: Requests in flight.
        windows: Measured windows.
        fingerprint: That of a run of the probe as configured.
    """
    times = found.times
    fields: dict[str, FieldValue | None] = {
        "prompt_s": times.prompt_s,
        "token_in_s": times.token_in_s,
        "token_out_s": times.token_out_s,
        "context_token_s": times.context_token_s,
        "cached_token_s": None if found.cached_token_s is None else times.cached_token_s,
        "tokens_in": float(times.mix.tokens_in),
        "tokens_out": float(times.mix.tokens_out),
        "in_flight": in_flight,
        "windows": windows,
        "fingerprint": fingerprint,
        **_interval("time", "in", "s", found.token_in_s),
        **_interval("time", "cached", "s", found.cached_token_s),
        **_interval("time", "out", "s", found.token_out_s),
        **_interval("energy", "in", "j", found.token_in_j),
        **_interval("energy", "cached", "j", found.cached_token_j),
        **_interval("energy", "out", "j", found.token_out_j),
    }
    return make_point("calibration", tags, fields, time_ns)


def _interval(
    what: str, kind: str, unit: str, found: ConfidenceInterval | None
) -> dict[str, FieldValue]:
    if found is None:
        return {}
    name = f"{what}_per_million_tokens_{kind}"
    return {
        f"{name}_{unit}": found.value * MILLION,
        f"{name}_low_{unit}": found.low * MILLION,
        f"{name}_high_{unit}": found.high * MILLION,
    }


def stored_calibration(row: Point) -> StoredCalibration | None:
    """Return the calibration of a row; None if it lacks a value, as one of another version may."""
    names = ("prompt_s", "token_in_s", "token_out_s", "context_token_s", "tokens_in", "tokens_out")
    values = [value for name in names if (value := number(row, name)) is not None and value >= 0]
    in_flight, fingerprint = number(row, "in_flight"), row.fields.get("fingerprint")
    if len(values) < len(names) or in_flight is None or min(values[4:]) <= 0:
        return None
    if sum(values[:2]) <= 0 or sum(values[2:4]) <= 0:
        return None
    prompt_s, token_in_s, token_out_s, context_token_s, *lengths = values
    cached_token_s = max(0.0, number(row, "cached_token_s") or 0.0)
    return StoredCalibration(
        TokenTimes(
            *(prompt_s, token_in_s, token_out_s, context_token_s, LengthMix(*lengths)),
            cached_token_s,
        ),
        row.time_ns,
        row.tags.get("probe", ""),
        str(fingerprint or ""),
        int(in_flight),
    )


# The newest calibration of a service, and the fingerprint of the newest run of its probe; each None
# if there is none.
Calibrated = Callable[[str], tuple[StoredCalibration | None, str | None]]


class CalibrationInForce:
    """Looks up the calibration for each window of a service with `token_split = "calibrated"`.

    Args:
        config: The service.
        calibrated: Reads the store.
    """

    def __init__(self, config: ServiceConfig, calibrated: Calibrated) -> None:
        self._config = config
        self._calibrated = calibrated
        self._found: StoredCalibration | None = None
        self._problem = ""

    def for_window(self, window: ServedWindow) -> Callable[[Counts], Weights] | None:
        """Return the weights of tokens by calibration; None where none applies to a window."""
        if not self._config.is_calibrated:
            return None
        self._found, fingerprint = self._calibrated(self._config.name)
        problem = self._problem_of(self._found, fingerprint, window)
        if problem and problem != self._problem:
            logger.warning("service %s: %s", self._config.name, problem)
        self._problem = problem
        return self._found.times.weights if self._found is not None and not problem else None

    def _problem_of(
        self, found: StoredCalibration | None, fingerprint: str | None, window: ServedWindow
    ) -> str:
        command = f"costprobe calibrate {self._config.name}"
        models = [model for model in window.models if model]
        if len(models) > 1:
            return f"a calibration is that of one model, and {len(models)} are served"
        if found is None:
            return f"no calibration is stored; run {command}"
        if found.is_stale(fingerprint):
            day = datetime.fromtimestamp(found.time_ns / NS_PER_S, UTC).strftime("%Y-%m-%d")
            return (
                f"the calibration of {day} is stale, because the server or the probe"
                f" {found.probe} changed; run {command}"
            )
        return ""

    def status(self) -> dict[str, Any] | None:
        """Return the calibration of the last window for `costprobe status`; None unless configured."""
        if not self._config.is_calibrated:
            return None
        found = self._found
        return {
            "time_ns": None if found is None else found.time_ns,
            "probe": None if found is None else found.probe,
            "in_flight": None if found is None else found.in_flight,
            "fingerprint": None if found is None else found.fingerprint,
            "problem": self._problem or None,
        }


@dataclass(frozen=True, slots=True)
class ProductionLoad:
    """The mean load of a service while it is busy.

    Attributes:
        mix: Mean lengths of its requests; None if requests or tokens are not counted.
        in_flight: Requests that a server decodes at a time; None where its engine does not count
            the decode time of requests.
    """

    mix: LengthMix | None
    in_flight: int | None


def production_load(rows: Sequence[Point], servers: int) -> ProductionLoad:
    """Return the load of a service.

    Args:
        rows: Its rows of `serving`, those of the whole service only.
        servers: Number of servers that share the work.
    """
    counts = Counts(
        requests=_sum(rows, "requests"),
        tokens_in=_sum(rows, "tokens_in"),
        tokens_out=_sum(rows, "tokens_out"),
        decode_request_s=_sum(rows, "decode_request_s"),
    )
    busy_s = math.fsum(
        (number(row, "window_s") or 0.0) * share
        for row in rows
        if (share := number(row, "busy_share")) is not None
    ) or _sum(rows, "window_s")
    batch = decode_batch(counts, busy_s, servers)
    mix = None
    if counts.requests and counts.tokens_in and counts.tokens_out:
        tokens_out = max(2.0, counts.tokens_out / counts.requests)
        mix = LengthMix(max(1.0, counts.tokens_in / counts.requests), tokens_out)
    return ProductionLoad(mix, None if batch is None else max(1, round(batch)))


def _sum(rows: Sequence[Point], field: str) -> float:
    return math.fsum(number(row, field) or 0.0 for row in rows)
