"""Windows of a server whose device time follows the model of a calibration exactly, and its row."""

from dataclasses import replace

from costprobe.serving.tokens import (
    CACHED_SHARE,
    CalibrationWindow,
    LengthMix,
    TokenTimes,
    calibrated,
    calibration_mixes,
    calibration_point,
)

MIX = LengthMix(1000, 200)
TRUTH = TokenTimes(0.004, 2e-5, 1e-3, 2e-7, MIX, 3e-6)
WATTS = 300.0


def window(mix, requests=40, noise=0.0, rng=None, times=TRUTH, cached=0.0):
    tokens_in = requests * mix.tokens_in
    own = CalibrationWindow(
        requests,
        tokens_in * (1 - cached),
        requests * mix.tokens_out,
        1.0,
        cached_tokens=tokens_in * cached,
    )
    parts = (times.prompt_s, times.token_in_s, times.token_out_s, times.context_token_s, 0.0)
    parts = (*parts, times.cached_token_s)
    device_s = sum(x * term for x, term in zip(parts, own.terms, strict=True))
    device_s *= 1 + (rng.gauss(0, noise) if rng else 0.0)
    return replace(own, device_s=device_s, energy_j=device_s * WATTS)


def half_cached(repeats=2, **more):
    mix = LengthMix(MIX.tokens_in, 20)
    return [window(mix, cached=CACHED_SHARE, **more) for _ in range(repeats)]


def windows(repeats=2, **more):
    return [window(mix, **more) for mix in calibration_mixes(MIX) for _ in range(repeats)]


def calibration_row(fingerprint="aa", time_ns=7):
    tags = {"service": "chat", "probe": "p", "device": "gpu0"}
    found = calibrated(windows(), MIX, half_cached())
    return calibration_point(found, tags, time_ns, in_flight=8, windows=10, fingerprint=fingerprint)
