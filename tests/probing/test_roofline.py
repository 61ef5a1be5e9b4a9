"""The physical limit of a pass, and what a run used of the board's peaks."""

from dataclasses import replace

import pytest
from costprobe.pricing.catalogue_files import gpu_names
from costprobe.probing.roofline import UNKNOWN_LIMIT, pass_limit
from fakes.runs import probe_run
from record.record_files import check_outcomes

# 1,000 passes of batch 4 in 10 s: 10 ms a pass.
RESULT = probe_run(
    batch=4,
    inferences=4000,
    flop_per_pass=989.4e10,  # a hundredth of a second's work of an H100 in bf16 is 10 ms
    bytes_per_pass=3.35e9,  # 1 ms
    flop_precision="bf16",
)


def test_limit_is_the_longer_of_computing_and_moving():
    h100, t4 = (gpu_names().named(name) for name in ("H100 80GB HBM3", "Tesla T4"))
    for name, gpu, changes, mfu_pct, mbu_pct, roofline_ms in (
        ("compute", h100, {}, 100.0, 10.0, 10.0),
        ("bandwidth", h100, {"flop_per_pass": 989.4e8}, 1.0, 10.0, 1.0),
        ("tf32", h100, {"flop_per_pass": 494.7e9, "flop_precision": "tf32"}, 10.0, 10.0, 1.0),
        # A T4 has no TF32, and no bf16.
        ("fp32", t4, {"flop_per_pass": 8.1e9, "flop_precision": "tf32"}, 10.0, 104.69, 10.47),
        ("no bf16", t4, {}, None, 104.69, None),
        ("no flop", h100, {"flop_per_pass": None}, None, 10.0, None),
        ("no bytes", h100, {"bytes_per_pass": None}, 100.0, None, None),
    ):
        found = pass_limit(replace(RESULT, **changes), gpu)
        expected = {"mfu_pct": mfu_pct, "mbu_pct": mbu_pct, "roofline_ms": roofline_ms}
        rounded = {key: value and round(value, 2) for key, value in found.fields().items()}
        assert rounded == expected, name
        assert (found.cost_share is None) == (roofline_ms is None), name
        if roofline_ms is not None:
            assert found.cost_share == pytest.approx(roofline_ms / 10, rel=1e-3), name
    assert pass_limit(RESULT, None) == UNKNOWN_LIMIT


def test_peaks_belong_to_the_very_board_and_rise_with_lower_precision():
    def bandwidth(text):
        gib, name = text.split(maxsplit=1)
        gpu = gpu_names().named(name, int(float(gib) * 2**30) or None)
        return gpu and gpu.memory_bytes_per_s

    check_outcomes("gpu_bandwidths.json", bandwidth)
    for gpu in gpu_names().gpus:
        peaks = [
            gpu.flop_per_s[name] for name in ("fp32", "tf32", "fp16") if name in gpu.flop_per_s
        ]
        assert peaks == sorted(peaks), gpu
        assert gpu.flop_per_s.get("bf16", peaks[-1] if peaks else 0) <= (peaks[-1] if peaks else 0)
