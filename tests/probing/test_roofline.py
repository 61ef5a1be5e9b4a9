"""The physical limit of a pass, and what a run used of the board's peaks."""

import json
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
    def limit(text):
        _, board, changes = json.loads(text)
        found = pass_limit(replace(RESULT, **changes), gpu_names().named(board))
        share = found.roofline_ms and pytest.approx(found.roofline_ms / 10, rel=1e-3)
        assert found.cost_share == share
        return {name: value and round(value, 2) for name, value in found.fields().items()}

    check_outcomes("pass_limits.json", limit)
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
