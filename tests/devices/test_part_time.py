"""Which energies a part-time power sensor makes less certain, and by how much."""

from dataclasses import replace

import pytest
from costprobe.core.records import Device, Energy
from costprobe.devices.use import sampling_error, with_sampling_error
from fakes.runs import probe_run

ENERGY = Energy(1000.0, "counter", 0.07)
RESULT = probe_run(
    batch=4,
    latency_ms={"p50": 100.0, "mean": 100.0, "cv": 0.0},
    window_end_ns=5_000_000_000,
    inferences=200,
)
PART_TIME = ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA H100 80GB HBM3", "NVIDIA GH200 480GB")
# The A10 and the L4 are seen all the time, and so is any other board that the paper measured.
WHOLE_TIME = ("NVIDIA A10", "NVIDIA RTX A3000", "NVIDIA L4", "NVIDIA GeForce RTX 3090")


def gpu(model):
    return Device("gpu0", "gpu", "GPU-1", model)


def test_only_part_time_boards_under_periodic_passes_become_less_certain():
    for model in PART_TIME:
        assert with_sampling_error(ENERGY, gpu(model), RESULT).rel_err == pytest.approx(0.82), model
    for model in WHOLE_TIME:
        assert with_sampling_error(ENERGY, gpu(model), RESULT) == ENERGY, model
    h100 = gpu(PART_TIME[1])
    assert with_sampling_error(ENERGY, Device("cpu", "cpu", "c", "H100"), RESULT) == ENERGY
    # Several clients of a server are not in step; one client is.
    for concurrency, rel_err in (("1", 0.82), ("4", 0.07)):
        served = replace(RESULT, batch=1, inferences=50.0, tags={"concurrency": concurrency})
        assert with_sampling_error(ENERGY, h100, served).rel_err == pytest.approx(rel_err), (
            concurrency
        )


def test_unseen_share_follows_the_ratio_of_pass_and_period():
    for pass_ms, unseen in (
        (0.1, 0),
        (25, 0),
        (100 / 3, 0.25),
        (50, 0.5),
        (90, 0),
        (100, 0.75),
        (100.5, 0.75),
        (103, 0),
        (200, 0.75 / 2**0.5),
    ):
        assert sampling_error(pass_ms / 1000, 5.0, 0.0) == pytest.approx(unseen, abs=1e-9), pass_ms
    # A longer window sees more of passes that nearly have the period; passes that vary move on.
    assert sampling_error(0.102, 10.0, 0.0) < sampling_error(0.102, 5.0, 0.0)
    assert sampling_error(0.1, 5.0, 0.1) == 0
