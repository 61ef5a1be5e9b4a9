"""What a probe child reads: the section of the configuration, and the run's own keys."""

import json

from costprobe.adapters.probe_child.runner import environment_of
from costprobe.core.records import Device
from costprobe.probing.run import model_request, served_request
from costprobe.probing.settings import KserveProbeConfig, OpenAiProbeConfig, ProbeConfig
from fakes.probe_requests import CPU

GPU = Device("gpu0", "gpu", "GPU-1", "Board", 80 << 30)
SERVER = {"name": "s", "url": "http://h", "model": "m"}


def read(request):
    return json.loads(request.to_wire())


def test_gpu_is_named_as_cuda_reads_it():
    named = {
        ("gpu0", "GPU-1"): "GPU-1",
        ("gpu1.mig0", "MIG-2"): "MIG-2",
        # Of a Jetson: CUDA and torch would read the UUID as the number 54.
        ("gpu0", "54b0b5a1-4f2e-5a0c-8a3b-0123456789ab"): "0",
    }
    for (name, uuid), visible in named.items():
        device = Device(name, "gpu", uuid, "Board")
        assert model_request(ProbeConfig(name="p"), device, {}, energy=True).visible_gpu == visible


def test_gpu_with_a_selector_is_selected_by_it_alone():
    selector = "ROCR_VISIBLE_DEVICES=GPU-49c8 HIP_VISIBLE_DEVICES=0"
    device = Device("amd0", "gpu", "GPU-49c8", "AMD", selector=selector)
    request = model_request(ProbeConfig(name="p"), device, {}, energy=True)
    found = environment_of(request)
    assert (found["ROCR_VISIBLE_DEVICES"], found["HIP_VISIBLE_DEVICES"]) == ("GPU-49c8", "0")
    assert "CUDA_VISIBLE_DEVICES" not in found


def test_run_on_the_processors_or_with_flushed_caches_has_its_own_keys():
    request = model_request(ProbeConfig(name="p", cold=True), CPU, {}, energy=True)
    assert request.visible_gpu is None
    found = read(request)
    assert (found["torch_device"], found["energy"], found["dtype"]) == ("cpu", False, "fp32")


def test_request_of_a_server_has_whole_tensors_and_the_place_of_its_token(monkeypatch):
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", "/run/c")
    tensor = {"name": "x", "datatype": "FP32", "shape": [2, 2]}
    kserve = KserveProbeConfig(
        kind="kserve", inputs=[{**tensor, "fill": 1.5}], **{**SERVER, "token": "credential:t"}
    )
    found = read(served_request(kserve, energy=True))
    assert found["inputs"] == [{**tensor, "data": [1.5] * 4}]
    assert (found["token_file"], found["energy"]) == ("/run/c/t", True)
    chat = OpenAiProbeConfig(kind="openai", **{**SERVER, "token": "file:/t"}, energy=False)
    found = read(served_request(chat, energy=True))
    assert (found["token_file"], found["energy"], found["api"]) == ("/t", False, "chat")
