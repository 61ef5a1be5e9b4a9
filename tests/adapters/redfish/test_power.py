"""The power of a server by Redfish: the shapes of vendors, impossible figures, and servers that misbehave.

Shapes: the mockups of DMTF's Redfish-Interface-Emulator (Chassis 1U: Power, EnvironmentMetrics) and
of its rack PDU (PowerEquipment/RackPDUs/1/Metrics), iLO's Power as in libredfish2 0.3.0
(tests/power.json), and the PowerControl of Lenovo and iDRAC as in Kepler's tests.
"""

import json

import pytest
from costprobe.adapters.redfish.power import (
    MAX_BYTES,
    PowerError,
    PowerReading,
    ServerPowerConfig,
    parse_power,
    read_power,
)
from costprobe.core.outside import UnusableInputError
from fakes.servers import TLS, Scripted, Talking
from pydantic import ValidationError

PATH = "/redfish/v1/Chassis/1U/Power"


def controls(*figures, **more):
    named = [{"Name": name, "PowerConsumedWatts": watts} for name, watts in figures]
    return {"@odata.type": "#Power.v1_7_0.Power", "PowerControl": named, **more}


def metrics(watts, kwh=None):
    energy = {} if kwh is None else {"EnergykWh": {"Reading": kwh}}
    return {"PowerWatts": {"Reading": watts, "DataSourceUri": "/redfish/v1/..."}, **energy}


READINGS = {
    "DMTF, and OpenBMC's name": (controls(("Chassis Power Control", 344)), (344, None)),
    "iDRAC": (controls(("System Power Control", 287.5)), (287.5, None)),
    "iLO": (controls((None, 590), PowerConsumedWatts=590), (590, None)),
    "Lenovo": (
        controls(
            ("Server Power Control", 450),
            ("CPU Sub-system Power", 85),
            ("Memory Sub-system Power", None),
        ),
        (450, None),
    ),
    "EnvironmentMetrics": (metrics(374), (374, None)),
    "Supermicro, HGX": (metrics(1349.263802, 12.5), (1349.263802, 12.5)),
    "PDU": (metrics(6438, 56438), (6438, 56438)),
    "Sensor": ({"ReadingType": "Power", "ReadingUnits": "W", "Reading": 12.5}, (12.5, None)),
}
REFUSED = {
    "no reading of power": (controls(("Chassis Power Control", None)), {}, {"PowerControl": 7}),
    "none of which is the server's": (controls(("PSU 1", 530), ("PSU 2", 531)),),
    "refers to /redfish/v1/Chassis/1/Power": (
        {"Power": {"@odata.id": "/redfish/v1/Chassis/1/Power"}},
        {"Members": [{"@odata.id": "/redfish/v1/Chassis/1/Power"}, 7]},
    ),
    "not a number from 0": (
        metrics(-5),
        metrics(1e9),
        metrics(True),
        metrics("8000"),
        metrics(float("nan")),
        metrics(374, -1),
        metrics([]),
    ),
    "a running server exceeds": (metrics(0),),
}


def test_power_and_counter_of_each_vendor():
    for name, (document, expected) in READINGS.items():
        assert parse_power(document) == PowerReading(*expected), name


def test_impossible_and_foreign_documents_are_refused():
    for words, documents in REFUSED.items():
        for document in documents:
            with pytest.raises(UnusableInputError, match=words):
                parse_power(document)


def config(url, **more):
    return ServerPowerConfig.model_validate({"url": f"{url}{PATH}", **more})


def test_reads_with_user_and_password_over_tls(tmp_path):
    secret = tmp_path / "password"
    secret.write_text("hunter2-secret")
    body = json.dumps(controls(("System Power Control", 287))).encode()

    def answer(_, path, headers, __):
        is_known = headers.get("Authorization") == "Basic Y29zdHByb2JlOmh1bnRlcjItc2VjcmV0"
        return (200, {}, body) if is_known and path == PATH else (401, {}, b'{"error": {}}')

    with Scripted(answer, tls=True) as bmc:
        url = bmc.url
        more = {"ca_file": str(TLS / "server.pem"), "user": "costprobe"}
        right = config(url, password=f"file:{secret}", **more)
        assert read_power(right) == PowerReading(287.0)
        with pytest.raises(
            PowerError, match=r"HTTP 401.*check user and password of \[server_power"
        ):
            read_power(config(url, **more))
        with pytest.raises(PowerError, match="certificate"):
            read_power(config(url, user="costprobe"))


def test_servers_that_misbehave_give_one_error():
    answers = {
        "redirects are not followed": (302, {"Location": "http://127.0.0.1:1/"}, b""),
        "check url of": (404, {}, b"{}"),
        f"more than {MAX_BYTES} bytes": (200, {}, b" " * (MAX_BYTES + 2)),
        "not valid JSON": (200, {}, b"<html>"),
        "not a JSON object": (200, {}, b"[344]"),
        "HTTP 503": (503, {}, b"busy"),
    }
    current = []
    with Scripted(lambda *_: current[-1]) as bmc:
        for words, response in answers.items():
            current.append(response)
            with pytest.raises(PowerError, match=words) as raised:
                read_power(config(bmc.url))
            assert "\n" not in str(raised.value)
            assert str(raised.value).startswith(bmc.url)
    with Talking(lambda _: None) as silent, pytest.raises(PowerError):
        read_power(config(silent.url))


def test_section_names_a_resource():
    for url in ("https://bmc", "https://bmc/redfish/v1/", "ftp://bmc/x", "https://u:p@bmc/a/b/c"):
        with pytest.raises(ValidationError, match="write"):
            ServerPowerConfig.model_validate({"url": url})
    with pytest.raises(ValidationError, match="less than or equal to 300"):
        ServerPowerConfig.model_validate({"url": f"https://bmc{PATH}", "every": "10m"})
