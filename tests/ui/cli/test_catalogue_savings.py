"""`costprobe savings` with the catalogue: commitments of the instance, and a server of one's own."""

from functools import partial

import pytest
from costprobe.adapters.clouds.instance import InstanceDetector
from costprobe.core.records import Point
from costprobe.pricing.prices import host_detector
from fakes.cli import NOW_S, Cli, session
from fakes.inference_server import InferenceServer

HOUR_NS = 3600 * 10**9
PRICE = '[[price]]\nplan = "on_demand"\nper_hour = 0.706832\n'
G4DN = {"sys_vendor": "Amazon EC2", "product_name": "g4dn.8xlarge"}
GCE = {"product_name": "Google Compute Engine"}
# What the clouds' servers of metadata answer, by the end of the path.
AWS = {"token": "token", "document": '{"instanceType": "g4dn.8xlarge", "region": "us-east-1"}'}
GCP = {"machine-type": "p/g2-standard-4", "zone": "p/us-central1-a", "preemptible": "FALSE"}
# A GPU, the DMI of its host, metadata of the cloud and the configuration, by the name of the session.
#
# 2.176 USD an hour of a g4dn.8xlarge are 19,062 USD a year, and 15,000 USD over three years 5,000: a server
# breaks even at 26 % of the hours, after 9.4 months. An assumed price gives it a range.
HOSTS = {
    "of_an_instance": ("Tesla T4", G4DN, AWS, ""),
    "of_another_cloud": ("NVIDIA L4", GCE, GCP, PRICE),
    "of_an_assumed_price": ("NVIDIA A100 80GB PCIe", {}, {}, ""),
    "of_an_unknown_gpu": ("NVIDIA T400", {}, {}, ""),
}


def telemetry(model):
    """Eight days of a GPU at 40 %, with a row every five minutes."""
    end_ns = NOW_S * 10**9 // HOUR_NS * HOUR_NS - 10**9
    tags = {"device": "gpu0", "kind": "gpu", "uuid": "GPU-1", "model": model}
    for i in range(8 * 288):
        yield Point("device", tags, {"util_pct": 40.0, "power_w": 60.0}, end_ns - i * HOUR_NS // 12)


@pytest.mark.usefixtures("stopped")
@pytest.mark.parametrize("name", HOSTS)
def test_savings_of_an_instance(name, tmp_path, monkeypatch):
    model, dmi, metadata, config = HOSTS[name]
    cli = Cli(tmp_path, f'[telemetry]\nevery = "30s"\n{config}')
    cli.append(telemetry(model))
    folder = tmp_path / "sys/class/dmi/id"
    folder.mkdir(parents=True)
    for file, text in dmi.items():
        (folder / file).write_text(text)

    def answer(call):
        body = next((text for end, text in metadata.items() if call.path.endswith(end)), None)
        call.whole((body or "").encode(), 404 if body is None else 200)

    host_detector.cache_clear()
    with InferenceServer(answer) as server:
        detector = partial(InstanceDetector, tmp_path, server.url, 5.0)
        monkeypatch.setattr("costprobe.pricing.prices.InstanceDetector", detector)
        session(f"savings_{name}", cli.config)
    host_detector.cache_clear()
