"""The instance by scripted metadata services: complete, refusing, hanging and silent ones."""

import dataclasses
import json
import shutil
import tomllib
from itertools import product
from pathlib import Path

import pytest
from costprobe.adapters.clouds.instance import InstanceDetector, cloud_of, read_dmi
from costprobe.configuration import validated
from costprobe.core.records import Instance
from costprobe.pricing.prices import assumed_prices
from fakes.inference_server import InferenceServer
from record.record_files import check_outcomes

TAG = "7783-7084-3265-9085-8269-3286-77"
DMI = {
    "aws": {"sys_vendor": "Amazon EC2", "product_name": "p5.48xlarge"},
    "azure": {"chassis_asset_tag": TAG},
    "gcp": {"product_name": "Google Compute Engine"},
    "oci": {"chassis_asset_tag": "OracleCloud.com"},
}
IDENTITY = {"instanceType": "g6.xlarge", "region": "eu-west-1", "accountId": "123456789012"}
AZURE = {"vmSize": "Standard_NC24ads_A100_v4", "location": "westeurope", "priority": "Regular"}
SESSION = "AQAEALqv-token"
GCP = "/computeMetadata/v1/instance"
# By cloud: header that each request must have, and body by path.
SERVICES = {
    "aws": (
        ("X-aws-ec2-metadata-token", SESSION),
        {
            "/latest/dynamic/instance-identity/document": json.dumps(IDENTITY),
            "/latest/meta-data/instance-life-cycle": "spot",
        },
    ),
    "azure": (
        ("Metadata", "true"),
        {"/metadata/instance?api-version=2020-12-01": json.dumps({"compute": AZURE})},
    ),
    "gcp": (
        ("Metadata-Flavor", "Google"),
        {
            f"{GCP}/machine-type": "projects/1/machineTypes/a3-highgpu-8g",
            f"{GCP}/zone": "projects/1/zones/us-central1-a",
            f"{GCP}/scheduling/preemptible": "TRUE",
        },
    ),
    "oci": (
        ("Authorization", "Bearer Oracle"),
        {
            "/opc/v2/instance/shape": "BM.GPU.H100.8",
            "/opc/v2/instance/canonicalRegionName": "us-ashburn-1",
        },
    ),
}
DETECTED = {
    "aws": Instance("aws", "g6.xlarge", "eu-west-1", "spot"),
    "azure": Instance("azure", "Standard_NC24ads_A100_v4", "westeurope", "on_demand"),
    "gcp": Instance("gcp", "a3-highgpu-8g", "us-central1", "spot"),
    "oci": Instance("oci", "BM.GPU.H100.8", "us-ashburn-1"),
}


def answering(cloud, **replaced):
    """Answers as the documented service; `replaced` has other bodies by the end of the path."""
    (header, value), bodies = SERVICES[cloud]

    def answer(call):
        if call.method == "PUT":
            ttl = call.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
            call.whole(SESSION.encode(), 200 if cloud == "aws" and ttl else 400)
            return
        body = next((b for end, b in replaced.items() if call.path.endswith(end)), None)
        body = bodies.get(call.path) if body is None else body
        allowed = call.headers.get(header) == value
        call.whole((body or "").encode(), 401 if not allowed else 404 if body is None else 200)

    return answer


@pytest.fixture
def detector(tmp_path):
    def make(cloud, server, limit_s=5.0):
        folder = tmp_path / "sys/class/dmi/id"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, text in DMI.get(cloud, {"sys_vendor": "Dell Inc."}).items():
            (folder / name).write_text(text)
        return InstanceDetector(tmp_path, server.url, limit_s)

    return make


def test_metadata_service_of_the_cloud_reports_type_region_and_market(detector):
    for cloud, expected in DETECTED.items():
        with InferenceServer(answering(cloud)) as server:
            found = detector(cloud, server)
            assert found.instance() == expected
            asked = len(server.calls)
            assert found.instance() == expected
            assert len(server.calls) == asked  # kept for the process


def test_nothing_is_requested_without_a_cloud_with_a_price_or_with_detection_off(
    detector, tmp_path
):
    with InferenceServer(answering("aws")) as server:
        assert detector("none", server).instance() is None
        found = detector("aws", server)
        price = {"plan": "on_demand", "per_hour": 1}
        for raw in ({"price": [price]}, {"host": {"detect": "off"}}):
            config = validated(raw, tmp_path / "costprobe.toml")
            assumed = assumed_prices(config.price, config.host, tmp_path / "store.db", found)
            assert assumed.instance is None
        assert not server.calls


def test_refused_requests_leave_the_type_of_dmi_and_the_next_call_asks_again(detector):
    statuses = [403, 404, 503]
    with InferenceServer(lambda call: call.whole(b"", statuses[len(server.calls) - 1])) as server:
        found = detector("aws", server)
        for number in range(len(statuses)):
            assert found.instance() == Instance("aws", "p5.48xlarge")
            assert len(server.calls) == number + 1


def test_other_answers_than_documented_are_ignored(detector):
    """The record has the instance for other bodies by the end of their paths; see `record_files`."""

    def found(text):
        cloud, replaced = json.loads(text)
        with InferenceServer(answering(cloud, **replaced)) as server:
            return dataclasses.astuple(detector(cloud, server).instance())

    check_outcomes("metadata_texts.json", found)


def byte_by_byte(call):
    call.whole(b"{", Content_Length="999")
    for _ in range(999):
        call.write(b" ")
        call.pause(0.02)


def test_other_servers_and_silence_leave_what_dmi_has_after_the_time_limit(detector):
    page = b"<html><title>Sign in to the network</title></html>"
    answers = {
        "page": lambda call: call.whole(page, 200),
        "redirection": lambda call: call.whole(b"", 302, Location="http://127.0.0.1:1/"),
        "no HTTP": lambda call: (call.write(b"220 mail.example.com ESMTP\r\n"), call.cut()),
        "nothing": lambda call: call.cut(),
        "byte by byte": byte_by_byte,
        # With a hop limit of 1 a container's request for a token has no answer.
        "silence": lambda call: call.pause(30),
    }
    found, asked = {}, {}
    for cloud, (name, answer) in product(SERVICES, answers.items()):
        with InferenceServer(answer) as server:
            found[cloud, name] = detector(cloud, server, 0.1).instance()
            asked[cloud, name] = len(server.calls)
    by_dmi = {cloud: Instance(cloud) for cloud in SERVICES} | {
        "aws": Instance("aws", "p5.48xlarge")
    }
    assert found == {key: by_dmi[key[0]] for key in found}
    assert asked["aws", "silence"] == 1


def test_cloud_and_type_follow_from_dmi(tmp_path):
    trees = tomllib.loads(Path(__file__).with_name("dmi.toml").read_text())
    expected = {name: tree.pop("instance", None) for name, tree in trees.items()}
    found = {}
    for name, files in trees.items():
        folder = tmp_path / name / "sys/class/dmi/id"
        folder.mkdir(parents=True)
        for file, text in files.items():
            (folder / file).write_text(f"{text}\n")
        found[name] = cloud_of(read_dmi(tmp_path / name))
    assert found == {name: cloud and Instance(*cloud) for name, cloud in expected.items()}


def test_xen_instance_is_recognized_by_its_hypervisor_uuid(tmp_path):
    (tmp_path / "sys/class/dmi/id").mkdir(parents=True)
    (tmp_path / "sys/hypervisor").mkdir()
    (tmp_path / "sys/class/dmi/id/sys_vendor").write_text("Xen\n")
    (tmp_path / "sys/hypervisor/uuid").write_text("ec2e1916-9099-7caf-fd21-012345abcdef\n")
    assert cloud_of(read_dmi(tmp_path)) == Instance("aws")
