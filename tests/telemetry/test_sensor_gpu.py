"""Through the real pynvml, in the real child process, against the fake library."""

import time

import pytest

NOT_SUPPORTED = 3
NO_PERMISSION = 4
FUNCTION_NOT_FOUND = 13
TIMEOUT = 10
GPU_IS_LOST = 15
UNKNOWN = 999


def fields_of(child, since=1, device="gpu0"):
    """The fields of a whole interval that began after the script was set."""
    child.wait_for("reading", device=device, since=since)
    return child.wait_for("reading", device=device, since=len(child.messages))["fields"]


def test_the_child_says_hello_with_what_the_driver_says(start_child, fake_nvml):
    fake = fake_nvml(gpus=2)
    hello = start_child(fake.env()).wait_for("hello")
    assert hello["driver_version"] == "580.65.06"
    assert hello["nvml_version"] == "13.580.65.06"
    assert sorted(device["name"] for device in hello["devices"]) == ["gpu0", "gpu1"]
    device = min(hello["devices"], key=lambda device: device["index"])
    assert device == {
        "name": "gpu0",
        "kind": "gpu",
        "uuid": "GPU-00000000-fake-4000-8000-000000000000",
        "model": "NVIDIA Fake 80GB",
        "index": 0,
        "memory_bytes": 80 << 30,
        "parent": "",
        "slices": 0,
        "slices_of": 0,
    }


def test_every_metric_arrives(start_child, fake_nvml):
    fake = fake_nvml()
    gpu = fake.gpus[0]
    gpu.set(util_pct=87, mem_util_pct=41, mem_used_bytes=7 << 30, temp_c=71, ecc_uncorrected=3)
    gpu.set(sm_clock_mhz=1755, mem_clock_mhz=2500)
    gpu.set_power(300.0, at_ns=time.monotonic_ns() - 2 * 10**9)
    gpu.set_processes([1234, 99], mps_pids=[99, 5])
    gpu.throttle(power_share=0.5, thermal_share=0.25)
    child = start_child(fake.env())
    fields = fields_of(child)
    energy_j = fields.pop("energy_j")
    throttled = fields.pop("throttle_power_s"), fields.pop("throttle_thermal_s")
    assert fields == {
        "power_w": pytest.approx(300, rel=0.001),
        "power_max_w": 300.0,
        "energy_method": "counter",
        "util_pct": 87.0,
        "mem_util_pct": 41.0,
        "mem_used_bytes": 7 << 30,
        "mem_total_bytes": 80 << 30,
        "temp_c": 71.0,
        "sm_clock_mhz": 1755.0,
        "mem_clock_mhz": 2500.0,
        "ecc_uncorrected": 3,
        "processes": 3,
    }
    # A quarter of a second at 300 W, by a counter that advances every 0.1 s.
    steps = round(energy_j / 30)
    assert steps >= 1
    assert energy_j == pytest.approx(30 * steps, abs=0.01)
    assert throttled[0] == pytest.approx(2 * throttled[1], rel=0.01)


def test_power_is_the_drivers_average_and_its_maximum_the_instant(start_child, fake_nvml):
    fake = fake_nvml()
    child = start_child(fake.env(), aggregate_every_s=0.3)
    child.wait_for("hello")
    fake.gpus[0].set_power(400.0)
    child.wait_for("reading", since=len(child.messages))
    first = child.wait_for("reading", since=len(child.messages))["fields"]
    assert first["power_max_w"] == 400.0
    assert first["power_w"] < 400.0


@pytest.mark.parametrize(
    ("missing", "fields"),
    [
        (["field:185"], {"power_w": 60.0}),
        (["field:186"], {"power_w": 60.0}),
        (["field:185", "field:186"], {"power_w": 60.0}),
        (["nvmlDeviceGetFieldValues"], {"power_w": 60.0}),
        (["nvmlDeviceGetMemoryInfo_v2"], {"mem_used_bytes": (1 << 30) + (1 << 29)}),
        (["nvmlDeviceGetTemperatureV"], {"temp_c": 35.0}),
        (["nvmlDeviceGetTotalEnergyConsumption"], {"energy_method": "poll"}),
    ],
)
def test_an_older_driver_is_asked_in_the_older_way(start_child, fake_nvml, missing, fields):
    fake = fake_nvml()
    for function in missing:
        fake.fail(function, FUNCTION_NOT_FOUND)
    assert fields_of(start_child(fake.env())).items() >= fields.items()


@pytest.mark.parametrize("refused", [[], ["nvmlDeviceGetCurrentClocksEventReasons"]])
def test_throttling_is_summed_from_the_reasons_where_the_driver_does_not_count(
    start_child, fake_nvml, refused
):
    fake = fake_nvml()
    for function in ["nvmlDeviceGetViolationStatus", *refused]:
        fake.fail(function, NOT_SUPPORTED)
    fake.gpus[0].set(event_reasons=0x04)
    child = start_child(fake.env())
    fields = fields_of(child)
    assert fields["throttle_power_s"] == pytest.approx(0.25, abs=0.15)
    assert fields["throttle_thermal_s"] == 0.0
    fake.gpus[0].set(event_reasons=0x08)
    fields = fields_of(child, since=len(child.messages))
    assert fields["throttle_thermal_s"] > 0


def test_a_metric_that_is_not_supported_is_absent_and_not_asked_for_again(start_child, fake_nvml):
    fake = fake_nvml(gpus=2)
    for function in ("nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetUtilizationRates"):
        fake.fail(function, NOT_SUPPORTED, gpu=1)
    child = start_child(fake.env())
    fields = fields_of(child, device="gpu1")
    assert not {"ecc_uncorrected", "util_pct", "mem_util_pct"} & fields.keys()
    assert fields_of(child, device="gpu0").keys() >= {"ecc_uncorrected", "util_pct"}
    assert fake.calls("nvmlDeviceGetUtilizationRates", gpu=1) == 1
    assert fake.calls("nvmlDeviceGetUtilizationRates", gpu=0) > 5
    assert fake.calls("nvmlDeviceGetTotalEccErrors", gpu=1) == 1
    assert fake.calls("nvmlDeviceGetTotalEccErrors", gpu=0) > 2


def test_a_denied_metric_is_told_once_with_its_fix(start_child, fake_nvml):
    fake = fake_nvml()
    fake.fail("nvmlDeviceGetTotalEccErrors", NO_PERMISSION)
    child = start_child(fake.env())
    fault = child.wait_for("fault", code="NO_PERMISSION")
    assert (fault["device"], fault["reaction"]) == ("gpu0", "absent")
    assert "/dev/nvidia" in fault["detail"]
    fields_of(child)
    assert [m["code"] for m in child.messages if m["type"] == "fault"] == ["NO_PERMISSION"]


@pytest.mark.parametrize("code", [TIMEOUT, UNKNOWN])
def test_a_transient_error_costs_values_until_it_passes(start_child, fake_nvml, code):
    fake = fake_nvml()
    rule = fake.fail("nvmlDeviceGetUtilizationRates", code)
    child = start_child(fake.env())
    assert "util_pct" not in fields_of(child)
    child.wait_for("fault", call="nvmlDeviceGetUtilizationRates", reaction="transient")
    rule.clear()
    assert "util_pct" in fields_of(child, since=len(child.messages))


def test_a_gpu_about_which_the_driver_says_nothing_is_set_aside(start_child, fake_nvml):
    fake = fake_nvml(gpus=2)
    fake.fail("nvmlDeviceGetName", NOT_SUPPORTED, gpu=0)
    child = start_child(fake.env())
    fault = child.wait_for("fault")
    assert (fault["device"], fault["reaction"]) == ("gpu0", "quarantine")
    assert [device["name"] for device in child.wait_for("hello")["devices"]] == ["gpu1"]


def test_a_gpu_that_vanishes_is_set_aside_while_the_others_go_on(start_child, fake_nvml):
    fake = fake_nvml(gpus=3)
    child = start_child(fake.env(), quarantine_first_s=0.5)
    child.wait_for("hello")
    fake.gpus[1].vanish()
    fault = child.wait_for("fault", device="gpu1")
    assert (fault["code"], fault["reaction"]) == ("GPU_IS_LOST", "quarantine")
    assert fault["retry_after_s"] == 0.5
    seen = len(child.messages)
    child.wait_for("fault", device="gpu1", since=seen, retry_after_s=1.0)
    assert {"gpu0", "gpu2"} <= child.wait_for("beat", since=seen)["ages_s"].keys()
    fake.gpus[1].come_back()
    device = child.wait_for("device", since=seen)["device"]
    assert (device["name"], device["index"]) == ("gpu1", 1)
    fields_of(child, since=len(child.messages), device="gpu1")


def test_a_quarantined_gpu_is_not_touched_by_a_new_child(start_child, fake_nvml):
    fake = fake_nvml(gpus=2)
    hang = fake.hang("*", gpu=1)
    child = start_child(fake.env(), quarantined=[{"index": 1, "retry_after_s": 1.0}])
    assert [device["name"] for device in child.wait_for("hello")["devices"]] == ["gpu0"]
    assert fake.calls("nvmlDeviceGetHandleByIndex_v2", gpu=1) == 0
    hang.clear()
    assert child.wait_for("device")["device"]["name"] == "gpu1"


def test_a_library_that_lost_its_state_is_initialized_again(start_child, fake_nvml):
    fake = fake_nvml(gpus=2)
    child = start_child(fake.env())
    child.wait_for("hello")
    assert fake.calls("nvmlInitWithFlags") == 1
    fake.uninitialize()
    for device in ("gpu0", "gpu1"):
        child.wait_for("device", since=1, device=child.messages[0]["devices"][int(device[3])])
        fields_of(child, since=len(child.messages), device=device)
    assert fake.calls("nvmlInitWithFlags") == 2
    assert [m for m in child.messages if m["type"] == "fault"] == []


def test_a_driver_upgrade_asks_for_a_new_process(start_child, fake_nvml):
    fake = fake_nvml()
    child = start_child(fake.env())
    child.wait_for("hello")
    fake.upgrade_driver("590.11")
    fault = child.wait_for("fault", code="LIB_RM_VERSION_MISMATCH")
    assert fault["reaction"] == "restart"
    assert child.wait_for("bye") == {
        "type": "bye",
        "reason": "library_mismatch",
        "device": "gpu0",
    }
    assert child.process.wait(60) == 0
    assert start_child(fake.env()).wait_for("hello")["driver_version"] == "590.11"


def test_a_mismatch_from_the_beginning_is_said_before_leaving(start_child, fake_nvml):
    fake = fake_nvml()
    fake.fail("nvmlInitWithFlags", 18)
    child = start_child(fake.env())
    assert "reboot" in child.wait_for("fault", code="LIB_RM_VERSION_MISMATCH")["detail"]
    assert child.wait_for("bye")["reason"] == "library_mismatch"


def test_a_hanging_call_ends_the_child_after_the_others_handed_over(start_child, fake_nvml):
    fake = fake_nvml(gpus=3)
    child = start_child(fake.env(), aggregate_every_s=1e6)
    child.wait_for("hello")
    child.wait_for("beat", since=len(child.messages))
    hang = fake.hang("nvmlDeviceGetClockInfo", gpu=2)
    bye = child.wait_for("bye")
    assert bye == {"type": "bye", "reason": "hung", "device": "gpu2"}
    fault = child.wait_for("fault")
    assert (fault["device"], fault["call"], fault["code"], fault["reaction"]) == (
        "gpu2",
        "nvmlDeviceGetClockInfo",
        "DEADLINE",
        "restart",
    )
    partial = {message["device"] for message in child.messages if message["type"] == "reading"}
    assert partial == {"gpu0", "gpu1"}
    child.process.wait(60)
    hang.clear()


def test_a_hang_while_the_devices_are_found_names_the_device(start_child, fake_nvml):
    fake = fake_nvml(gpus=2)
    hang = fake.hang("nvmlDeviceGetUUID", gpu=1)
    child = start_child(fake.env(), startup_s=1.0)
    assert child.wait_for("bye") == {"type": "bye", "reason": "hung", "device": "gpu1"}
    child.process.wait(60)
    hang.clear()


def test_the_other_devices_are_sampled_while_one_hangs(start_child, fake_nvml, wait_until):
    fake = fake_nvml(gpus=2)
    child = start_child(fake.env(), deadline_s=30.0)
    child.wait_for("hello")
    hang = fake.hang("nvmlDeviceGetUtilizationRates", gpu=0)
    time.sleep(0.3)
    before = fake.calls("nvmlDeviceGetUtilizationRates", gpu=1)
    seen = len(child.messages)
    child.wait_for("reading", device="gpu1", since=seen)
    # On a busy machine samples are skipped, and a row may hold but one.
    wait_until(lambda: fake.calls("nvmlDeviceGetUtilizationRates", gpu=1) > before + 3)
    hang.clear()
    child.wait_for("reading", device="gpu0", since=len(child.messages))


def test_what_moves_slowly_is_asked_for_as_often_as_it_is_needed(start_child, fake_nvml):
    fake = fake_nvml()
    child = start_child(fake.env(), sample_every_s=0.05, aggregate_every_s=1.0)
    child.wait_for("hello")
    asked = {"nvmlDeviceGetUtilizationRates": 0, "nvmlDeviceGetMemoryInfo_v2": 0}

    def more_calls():
        before = dict(asked)
        child.wait_for("reading", since=len(child.messages))
        asked.update({function: fake.calls(function) for function in asked})
        return [asked[function] - before[function] for function in asked]

    more_calls()
    quick, slow = more_calls()
    assert slow <= 2
    assert quick > 5
    until_ns = time.monotonic_ns() + 60 * 10**9
    child.send({"cmd": "watch", "device": "gpu0", "until_ns": until_ns})
    more_calls()
    quick, slow = more_calls()
    # The two are counted one after the other, at both ends.
    assert abs(quick - slow) <= 2
    assert slow > 5


def test_without_a_driver_the_processors_stand_in(start_child):
    child = start_child(cpu="auto")
    hello = child.wait_for("hello")
    assert (hello["driver_version"], hello["nvml_version"]) == (None, None)
    assert [device["kind"] for device in hello["devices"]] == ["cpu"]
    fields = fields_of(child, device="cpu")
    assert fields["energy_method"] in ("rapl", "modelled")
    assert fields.keys() >= {"energy_j", "power_w", "util_pct", "mem_used_bytes"}


def test_with_gpus_the_processors_are_read_only_when_asked_for(start_child, fake_nvml):
    fake = fake_nvml()
    hello = start_child(fake.env(), cpu="auto").wait_for("hello")
    assert [device["name"] for device in hello["devices"]] == ["gpu0"]
    hello = start_child(fake.env(), cpu=True).wait_for("hello")
    assert sorted(device["name"] for device in hello["devices"]) == ["cpu", "gpu0"]
    hello = start_child(fake.env(), gpus=False, cpu="auto").wait_for("hello")
    assert [device["name"] for device in hello["devices"]] == ["cpu"]


@pytest.mark.parametrize("code", [9, 12])
def test_a_driver_that_is_loaded_later_is_found(start_child, fake_nvml, code):
    fake = fake_nvml(gpus=2)
    absent = fake.fail("nvmlInitWithFlags", code)
    child = start_child(fake.env(), quarantine_first_s=0.5)
    hello = child.wait_for("hello")
    assert (hello["driver_version"], hello["devices"]) == (None, [])
    absent.clear()
    child.wait_for("hello", driver_version="580.65.06")
    for device in ("gpu0", "gpu1"):
        child.wait_for("reading", device=device)
    assert [m for m in child.messages if m["type"] == "fault"] == []


def test_a_driver_that_denies_everything_is_a_fault_and_no_gpu(start_child, fake_nvml):
    fake = fake_nvml()
    fake.fail("nvmlInitWithFlags", NO_PERMISSION)
    child = start_child(fake.env(), cpu="auto")
    assert child.wait_for("fault", call="nvmlInit")["device"] is None
    assert child.wait_for("hello")["driver_version"] is None
