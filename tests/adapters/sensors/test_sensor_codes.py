import pynvml
import pytest
from costprobe.adapters.sensors.child.nvml import (
    CODES,
    HINTS,
    NO_DRIVER,
    fault_of,
    nvml_call,
    reaction_to,
)
from costprobe.adapters.sensors.messages import Reaction, SensorFault

ERRORS = {
    name.removeprefix("NVML_ERROR_"): value
    for name, value in vars(pynvml).items()
    if name.startswith("NVML_ERROR_")
}


def test_pynvml_declares_error_codes():
    assert ERRORS["GPU_IS_LOST"] == 15
    assert len(ERRORS) >= 30


def test_every_return_code_of_nvml_has_its_name_and_a_reaction():
    assert {name: value for value, (name, _) in CODES.items()} == ERRORS


def test_reactions_to_frequent_codes():
    expected = {
        "UNINITIALIZED": Reaction.REINIT,
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
    assert {code: reaction_to(ERRORS[code]) for code in expected} == {
        code: (code, reaction) for code, reaction in expected.items()
    }


def test_unknown_code_is_transient_and_keeps_its_number():
    assert reaction_to(4242) == ("CODE_4242", Reaction.TRANSIENT)


def test_hints_and_driver_codes_name_real_codes():
    assert set(HINTS) | NO_DRIVER <= set(ERRORS)


def test_fault_states_the_fix():
    fault = fault_of("nvmlDeviceGetPowerUsage", 15, "GPU is lost.")
    assert fault.detail.startswith("GPU is lost; ")
    assert "dmesg" in fault.detail
    assert str(fault).startswith("nvmlDeviceGetPowerUsage: GPU_IS_LOST: ")


def test_pynvmls_errors_are_translated_and_kept_as_the_cause():
    # No driver's library is initialized in this process.
    with pytest.raises(SensorFault) as caught:
        nvml_call("nvmlDeviceGetCount")
    assert caught.value.reaction is Reaction.REINIT
    assert isinstance(caught.value.__cause__, pynvml.NVMLError)


def test_function_missing_in_old_pynvml_makes_the_metric_absent():
    with pytest.raises(SensorFault) as caught:
        nvml_call("nvmlDeviceGetSomethingOfTheFuture")
    assert caught.value.code == "FUNCTION_NOT_FOUND"
    assert caught.value.reaction is Reaction.ABSENT


def test_unexpected_error_of_pynvml_is_one_that_may_pass():
    with pytest.raises(SensorFault, match="TypeError") as caught:
        nvml_call("nvmlDeviceGetHandleByIndex", "no number")
    assert (caught.value.code, caught.value.reaction) == ("FAILED", Reaction.TRANSIENT)
