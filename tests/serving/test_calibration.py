"""A calibration divides device time and energy between prompt tokens and generated tokens."""

import random
from dataclasses import replace

import pytest
from costprobe.serving.cost import token_shares
from costprobe.serving.meter import Counts, ServedWindow
from costprobe.serving.settings import ServiceConfig
from costprobe.serving.tokens import (
    CalibrationInForce,
    LengthMix,
    TokenWeighing,
    calibrated,
    calibration_mixes,
    stored_calibration,
)
from fakes.calibrated import MIX, TRUTH, WATTS, calibration_row, half_cached, window, windows


def test_coefficients_of_exact_windows_are_recovered():
    found = calibrated(windows(), MIX)
    assert found.times.prompt_s == pytest.approx(0.004)
    assert found.times.context_token_s == pytest.approx(2e-7)
    token_in_s, token_out_s = 0.004 / 1000 + 2e-5, (1e-3 + 1100 * 2e-7) * 199 / 200
    for interval, truth in (
        (found.token_in_s, token_in_s),
        (found.token_out_s, token_out_s),
        (found.token_in_j, token_in_s * WATTS),
        (found.token_out_j, token_out_s * WATTS),
    ):
        assert interval == pytest.approx((truth, truth, truth), rel=1e-5)
    # Equal lengths of prompt and answer separate the terms, too.
    even = LengthMix(500, 500)
    measured = [window(mix) for mix in calibration_mixes(even) for _ in range(2)]
    assert calibrated(measured, even).times.token_in_s == pytest.approx(2e-5)


def test_cached_tokens_have_a_time_with_its_interval_where_windows_had_some():
    found = calibrated(windows(), MIX, half_cached())
    assert (found.times.cached_token_s, found.cached_token_s.low, found.cached_token_j.value) == (
        pytest.approx((3e-6, 3e-6, 3e-6 * WATTS), rel=1e-4)
    )
    assert found.token_in_s.value == pytest.approx(calibrated(windows(), MIX).token_in_s.value)
    without = calibrated(windows(), MIX)
    assert (without.times.cached_token_s, without.cached_token_s, without.cached_token_j) == (
        *(0.0, None, None),
    )
    rng, held, zeros = random.Random(3), 0, 0
    for truth_s in (3e-6, 0.0):
        times = replace(TRUTH, cached_token_s=truth_s)
        for _ in range(100):
            noisy = {"noise": 0.02, "rng": rng, "times": times}
            interval = calibrated(windows(**noisy), MIX, half_cached(**noisy)).cached_token_s
            held += interval.low <= truth_s <= interval.high
            zeros += interval.value == 0.0 and interval.high > 0.0
            assert 0.0 <= interval.low <= interval.value <= interval.high
    # A time that is not distinguishable from none has an upper end all the same.
    assert held >= 180
    assert zeros > 20


def test_windows_that_tell_nothing_are_refused():
    same = [window(MIX) for _ in range(8)]
    for measured, words in (
        (windows()[:4], "4 windows are too few: a calibration needs 6"),
        (same, "do not tell prompt tokens and generated tokens apart"),
        ([*windows(), replace(window(MIX), requests=0.0)], "a window has no requests"),
        ([*windows(), replace(window(MIX), device_s=0.0)], "no device time"),
    ):
        with pytest.raises(ValueError, match=words):
            calibrated(measured, MIX)


def test_row_of_a_calibration_divides_the_tokens_of_production():
    found = calibrated(windows(), MIX, half_cached())
    row = calibration_row()
    assert row.fields["time_per_million_tokens_cached_high_s"] == pytest.approx(3.0, rel=1e-4)
    assert row.fields["time_per_million_tokens_in_s"] == pytest.approx(24.0)
    assert row.fields["energy_per_million_tokens_in_high_j"] == pytest.approx(7200.0, rel=1e-4)
    read = stored_calibration(row)
    assert (read.times, read.time_ns, read.probe, read.in_flight) == (found.times, 7, "p", 8)
    assert [read.is_stale(text) for text in ("aa", None, "bb")] == [False, False, True]
    for name, value in (("prompt_s", None), ("tokens_in", 0.0), ("token_out_s", -1.0)):
        odd = replace(
            row, fields={k: v for k, v in {**row.fields, name: value}.items() if v is not None}
        )
        assert stored_calibration(odd) is None, name

    # Of longer requests the prompt's fixed part is less per token, and the context more.
    counts = Counts(requests=10.0, tokens_in=30_000.0, cached_tokens=10_000.0, tokens_out=1000.0)
    context = 3000 + 50
    token_in_s = 10 * 0.004 + 20_000 * 2e-5
    token_out_s = 990 * (1e-3 + context * 2e-7)
    cached_s = 10_000 * 3e-6
    for known in (counts, replace(counts, prefill_s=1.0, decode_s=1.0)):
        shares = token_shares({"m": known}, TokenWeighing(calibrated=read.times.weights))
        assert shares.split == "calibrated"
        whole_s = token_in_s + cached_s + token_out_s
        assert float(shares.fresh) == pytest.approx(token_in_s / whole_s)
        assert float(shares.cached) == pytest.approx(cached_s / whole_s)
    unmeasured = {k: v for k, v in row.fields.items() if k != "cached_token_s"}
    assert stored_calibration(replace(row, fields=unmeasured)).times.cached_token_s == 0.0
    # Without counted requests the lengths are those of the calibration.
    weights = read.times.weights(Counts(tokens_in=10.0, tokens_out=10.0))
    assert weights.token_in == pytest.approx(2.4e-5)
    assert weights.token_out == pytest.approx(found.token_out_s.value)


def test_calibration_applies_to_windows_until_server_or_probe_change():
    def in_force(split, found, fingerprint, models=("m",)):
        given = {"name": "chat", "url": "http://h", "engine": "vllm", "devices": ["gpu0"]}
        config = ServiceConfig.model_validate({**given, "token_split": split})
        force = CalibrationInForce(config, lambda _: (found, fingerprint))
        served = ServedWindow("chat", "vllm", 0, 1, {model: Counts() for model in ("", *models)})
        return force.for_window(served) is not None, (force.status() or {}).get("problem")

    row = stored_calibration(calibration_row(time_ns=1_780_000_000 * 10**9))
    changed = "the calibration of 2026-05-28 is stale, because the server or the probe p changed"
    for arguments, applies, problem in (
        (("auto", row, "aa"), False, None),
        (("calibrated", row, "aa"), True, None),
        (("calibrated", row, None), True, None),
        (("calibrated", row, "bb"), False, f"{changed}; run costprobe calibrate chat"),
        (
            ("calibrated", None, "aa"),
            False,
            "no calibration is stored; run costprobe calibrate chat",
        ),
        (
            ("calibrated", row, "aa", ("m", "n")),
            False,
            "a calibration is that of one model, and 2 are served",
        ),
    ):
        assert in_force(*arguments) == (applies, problem), arguments


def test_time_of_a_step_is_that_of_its_generated_tokens():
    # Eight requests in flight, of which the prefill-heavy loads have fewer in generation.
    step_s, measured = 0.01, []
    for each in windows():
        steps = each.decoded / (8 if each.tokens_out > each.requests * 100 else 2)
        device_s = each.device_s + steps * step_s
        measured.append(replace(each, device_s=device_s, decode_steps=steps, energy_j=None))
    found = calibrated(measured, MIX)
    assert found.token_in_s.value == pytest.approx(0.004 / 1000 + 2e-5, rel=1e-4)
    own_s = 1e-3 + 1100 * 2e-7 + step_s / 8
    assert found.token_out_s.value == pytest.approx(own_s * 199 / 200, rel=1e-4)
    assert found.times.token_out_s == pytest.approx(1e-3 + step_s / 8, rel=1e-4)
