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
from fakes.servers import TLS, Scripted, Talking
from pydantic import ValidationError
from record.record_files import check_outcomes

PATH = "/redfish/v1/Chassis/1U/Power"


def controls(*figures, **more):
    named = [{"Name": name, "PowerConsumedWatts": watts} for name, watts in figures]
    return {"@odata.type": "#Power.v1_7_0.Power", "PowerControl": named, **more}


def test_documents_of_vendors_and_of_others_are_read_or_refused():
    """The record has W and kWh of each document, or the error; see `record_files`."""
    check_outcomes("redfish_texts.json", lambda text: list(parse_power(json.loads(text))))


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
