"""Windows of a server whose device time follows the model of a calibration exactly, and its row."""

from dataclasses import replace

from costprobe.serving.tokens import (
    CalibrationWindow,
    LengthMix,
    TokenTimes,
    calibrated,
    calibration_mixes,
    calibration_point,
)

MIX = LengthMix(1000, 200)
TRUTH = TokenTimes(0.004, 2e-5, 1e-3, 2e-7, MIX)
WATTS = 300.0


def window(mix, requests=40, noise=0.0, rng=None, times=TRUTH):
    own = CalibrationWindow(requests, requests * mix.tokens_in, requests * mix.tokens_out, 1.0)
    parts = (times.prompt_s, times.token_in_s, times.token_out_s, times.context_token_s)
    device_s = sum(x * term for x, term in zip(parts, own.terms[:4], strict=True))
    device_s *= 1 + (rng.gauss(0, noise) if rng else 0.0)
    return replace(own, device_s=device_s, energy_j=device_s * WATTS)


def windows(repeats=2, **more):
    return [window(mix, **more) for mix in calibration_mixes(MIX) for _ in range(repeats)]


def calibration_row(fingerprint="aa", time_ns=7):
    tags = {"service": "chat", "probe": "p", "device": "gpu0"}
    found = calibrated(windows(), MIX)
    return calibration_point(found, tags, time_ns, in_flight=8, windows=10, fingerprint=fingerprint)
