"""The files that control the fake NVML; `fake_nvml.c` and `script_types.h` have the same layout."""

import ctypes
import mmap
from pathlib import Path

MAX_GPUS = 16
MAX_SEGMENTS = 2048
MAX_RULES = 64
MAX_PIDS = 32
MAX_COUNTS = 64
NAME_LENGTH = 96
MAX_MIGS = 8


class Segment(ctypes.Structure):
    _fields_ = (("from_ns", ctypes.c_int64), ("power_w", ctypes.c_double))


class Mig(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * NAME_LENGTH),
        ("uuid", ctypes.c_char * NAME_LENGTH),
        ("slices", ctypes.c_uint64),
        ("compute_slices", ctypes.c_uint64),
        ("mem_total_bytes", ctypes.c_uint64),
        ("mem_used_bytes", ctypes.c_uint64),
        ("pid_count", ctypes.c_int64),
        ("pids", ctypes.c_uint64 * MAX_PIDS),
    )


class Gpu(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * NAME_LENGTH),
        ("uuid", ctypes.c_char * NAME_LENGTH),
        ("segment_count", ctypes.c_int64),
        ("segments", Segment * MAX_SEGMENTS),
        ("counter_zero_ns", ctypes.c_int64),
        ("counter_step_ns", ctypes.c_int64),
        ("counter_base_mj", ctypes.c_uint64),
        ("util_pct", ctypes.c_uint64),
        ("mem_util_pct", ctypes.c_uint64),
        ("mem_total_bytes", ctypes.c_uint64),
        ("mem_reserved_bytes", ctypes.c_uint64),
        ("mem_used_bytes", ctypes.c_uint64),
        ("temp_c", ctypes.c_int64),
        ("sm_clock_mhz", ctypes.c_uint64),
        ("mem_clock_mhz", ctypes.c_uint64),
        ("power_limit_mw", ctypes.c_uint64),
        ("power_limit_max_mw", ctypes.c_uint64),
        ("event_reasons", ctypes.c_uint64),
        ("throttle_since_ns", ctypes.c_int64),
        ("throttle_base_ns", ctypes.c_uint64 * 2),
        ("throttle_share", ctypes.c_double * 2),
        ("ecc_uncorrected", ctypes.c_uint64),
        ("pid_count", ctypes.c_int64),
        ("pids", ctypes.c_uint64 * MAX_PIDS),
        ("mps_pid_count", ctypes.c_int64),
        ("mps_pids", ctypes.c_uint64 * MAX_PIDS),
        ("busy_pid_count", ctypes.c_int64),
        ("busy_pids", ctypes.c_uint64 * MAX_PIDS),
        ("busy_pcts", ctypes.c_uint64 * MAX_PIDS),
        ("graphics_pid_count", ctypes.c_int64),
        ("graphics_pids", ctypes.c_uint64 * MAX_PIDS),
        ("unfilled_count", ctypes.c_int64),
        ("module_extra_w", ctypes.c_double),
        ("counter_extra_w", ctypes.c_double),
        ("has_no_gpu_power", ctypes.c_int64),
        ("counts_by_scope", ctypes.c_int64),
        ("ignores_scope", ctypes.c_int64),
        ("gain", ctypes.c_double),
        ("power_period_ns", ctypes.c_int64),
        ("power_window_ns", ctypes.c_int64),
        ("average_period_ns", ctypes.c_int64),
        ("average_window_ns", ctypes.c_int64),
        ("samples_period_ns", ctypes.c_int64),
        ("samples_kept", ctypes.c_int64),
        ("counter_gap_ns", ctypes.c_int64),
        ("counter_loss", ctypes.c_double),
        ("persistence_mode", ctypes.c_int64),
        ("compute_mode", ctypes.c_int64),
        ("mig_mode", ctypes.c_int64),
        ("migs", Mig * MAX_MIGS),
    )


class Rule(ctypes.Structure):
    _fields_ = (
        ("function", ctypes.c_char * NAME_LENGTH),
        ("gpu", ctypes.c_int64),
        ("code", ctypes.c_int64),
        ("hang", ctypes.c_int64),
    )


class Control(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint64),
        ("simulated_ns", ctypes.c_int64),
        ("utc_offset_ns", ctypes.c_int64),
        ("gpu_count", ctypes.c_int64),
        ("driver_version", ctypes.c_char * NAME_LENGTH),
        ("nvml_version", ctypes.c_char * NAME_LENGTH),
        ("process_record_bytes", ctypes.c_int64),
        ("upgraded_at_ns", ctypes.c_int64),
        ("rule_count", ctypes.c_int64),
        ("rules", Rule * MAX_RULES),
        ("gpus", Gpu * MAX_GPUS),
    )


class Count(ctypes.Structure):
    _fields_ = (("function", ctypes.c_char * NAME_LENGTH), ("calls", ctypes.c_uint64 * 17))


def map_structure(path: Path, kind):
    """A new file of zeros that is read and written as a structure."""
    length = ctypes.sizeof(kind)
    with path.open("w+b") as file:
        file.truncate(length)
        return kind.from_buffer(mmap.mmap(file.fileno(), length))
