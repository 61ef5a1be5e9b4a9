"""Return codes of NVML as faults of the sensors."""

import pynvml
import pytest
from costprobe.adapters.sensors.child.nvml import HINTS, NO_DRIVER, REACTIONS, fault_of, nvml_call
from costprobe.adapters.sensors.messages import Reaction, SensorFault

ERRORS = {
    name.removeprefix("NVML_ERROR_"): value
    for name, value in vars(pynvml).items()
    if name.startswith("NVML_ERROR_")
}


def test_codes_have_their_names_and_reactions():
    expected = {
        "UNINITIALIZED": Reaction.RESTART,
        "NOT_SUPPORTED": Reaction.ABSENT,
        "FUNCTION_NOT_FOUND": Reaction.ABSENT,
        "NO_PERMISSION": Reaction.ABSENT,
        "TIMEOUT": Reaction.TRANSIENT,
        "UNKNOWN": Reaction.TRANSIENT,
        "GPU_IS_LOST": Reaction.QUARANTINE,
        "RESET_REQUIRED": Reaction.QUARANTINE,
        "LIB_RM_VERSION_MISMATCH": Reaction.RESTART,
        "DRIVER_NOT_LOADED": Reaction.RESTART,
    }
    faults = {name: fault_of("nvmlX", ERRORS[name]) for name in expected}
    assert {fault.code: fault.reaction for fault in faults.values()} == expected
    unknown = fault_of("nvmlX", 4242)
    assert (unknown.code, unknown.reaction) == ("CODE_4242", Reaction.TRANSIENT)
    assert set(HINTS) | NO_DRIVER | set(REACTIONS) <= set(ERRORS)
    lost = fault_of("nvmlDeviceGetPowerUsage", 15, "GPU is lost.")
    assert str(lost).startswith("nvmlDeviceGetPowerUsage: GPU_IS_LOST: GPU is lost; it has fallen")


def test_errors_of_pynvml_are_translated():
    # No driver's library is initialized in this process.
    cases = {
        ("nvmlDeviceGetCount",): ("UNINITIALIZED", Reaction.RESTART),
        ("nvmlDeviceGetSomethingOfTheFuture",): ("FUNCTION_NOT_FOUND", Reaction.ABSENT),
        ("nvmlDeviceGetHandleByIndex", "no number"): ("FAILED", Reaction.TRANSIENT),
    }
    for call, expected in cases.items():
        with pytest.raises(SensorFault) as caught:
            nvml_call(*call)
        assert (caught.value.code, caught.value.reaction) == expected, call
