import pynvml
import pytest

from agent.telemetry.faults import Reaction, SensorFault
from agent.telemetry.nvml import CODES, HINTS, NO_DRIVER, fault_of, nvml_call, reaction_to

ERRORS = {
    name.removeprefix("NVML_ERROR_"): value
    for name, value in vars(pynvml).items()
    if name.startswith("NVML_ERROR_")
}


def test_pynvml_declares_error_codes():
    assert ERRORS["GPU_IS_LOST"] == 15
    assert len(ERRORS) >= 30


@pytest.mark.parametrize(("name", "value"), sorted(ERRORS.items()))
def test_every_return_code_of_nvml_has_its_name_and_a_reaction(name, value):
    assert CODES[value][0] == name
    assert isinstance(CODES[value][1], Reaction)


def test_no_code_is_of_our_own_making():
    assert {name: value for value, (name, _) in CODES.items()} == ERRORS


@pytest.mark.parametrize(
    ("code", "reaction"),
    [
        ("UNINITIALIZED", Reaction.REINIT),
        ("NOT_SUPPORTED", Reaction.ABSENT),
        ("FUNCTION_NOT_FOUND", Reaction.ABSENT),
        ("NO_PERMISSION", Reaction.ABSENT),
        ("TIMEOUT", Reaction.TRANSIENT),
        ("UNKNOWN", Reaction.TRANSIENT),
        ("GPU_IS_LOST", Reaction.QUARANTINE),
        ("RESET_REQUIRED", Reaction.QUARANTINE),
        ("LIB_RM_VERSION_MISMATCH", Reaction.RESTART),
        ("DRIVER_NOT_LOADED", Reaction.RESTART),
    ],
)
def test_codes_of_note_have_their_reaction(code, reaction):
    assert reaction_to(ERRORS[code]) == (code, reaction)


def test_a_code_of_a_later_nvml_is_transient_and_keeps_its_number():
    assert reaction_to(4242) == ("CODE_4242", Reaction.TRANSIENT)


def test_hints_and_driver_codes_name_real_codes():
    assert set(HINTS) | NO_DRIVER <= set(ERRORS)


def test_a_fault_says_what_the_operator_can_do():
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


def test_a_function_that_an_old_pynvml_lacks_is_absent():
    with pytest.raises(SensorFault) as caught:
        nvml_call("nvmlDeviceGetSomethingOfTheFuture")
    assert caught.value.code == "FUNCTION_NOT_FOUND"
    assert caught.value.reaction is Reaction.ABSENT
