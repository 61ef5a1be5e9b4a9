"""`infercost grafana`: what it writes is what Grafana reads when it starts."""

import json
import subprocess
import sys

import pytest
import yaml
from fakes.command import called

from agent.grafana.boards import boards

V1 = ['api = "v1"', 'url = "https://influx.example.com:8086"', 'database = "costs"']
V2 = ['api = "v2"', 'url = "http://influx:8086"', 'org = "ml"', 'bucket = "infercost"']


@pytest.fixture
def infercost(tmp_path):
    """Runs `infercost grafana` with a sink; what it says."""

    def run(sink, *arguments, code=0):
        config = tmp_path / "infercost.toml"
        config.write_text("[[sink]]\n" + "".join(f"{line}\n" for line in sink))
        return called(config, "grafana", *arguments, code=code).output

    return run


def read(folder, kind):
    return yaml.safe_load((folder / kind / "infercost.yaml").read_text())


def source_of(folder):
    document = read(folder, "datasources")
    assert document["apiVersion"] == 1
    (source,) = document["datasources"]
    return source


def test_export_writes_the_dashboards_as_they_are(infercost, tmp_path):
    said = infercost(V1, "export", str(tmp_path / "out"))
    assert {p.name: p.read_text() for p in (tmp_path / "out").iterdir()} == boards()
    assert "Import" in said


def test_provision_for_1x_with_a_user_whose_password_stays_in_its_file(infercost, tmp_path):
    folder = tmp_path / "provisioning"
    password = ("--user", "reader", "--secret-file", "/etc/grafana/influx.password")
    said = infercost(V1, "provision", str(folder), *password)
    assert source_of(folder) == {
        "name": "infercost",
        "uid": "infercost",
        "type": "influxdb",
        "access": "proxy",
        "url": "https://influx.example.com:8086",
        "user": "reader",
        "jsonData": {"dbName": "costs", "httpMode": "POST"},
        "secureJsonData": {"password": "$__file{/etc/grafana/influx.password}"},
    }
    (provider,) = read(folder, "dashboards")["providers"]
    assert provider["options"] == {"path": "/var/lib/grafana/dashboards/infercost"}
    assert (provider["type"], provider["allowUiUpdates"]) == ("file", False)
    assert {p.name: p.read_text() for p in (folder / "boards").iterdir()} == boards()
    assert "restart Grafana" in said


def test_provision_for_2x_asks_in_influxql_with_a_token(infercost, tmp_path):
    folder = tmp_path / "p"
    infercost(V2, "provision", str(folder), "--secret-file", "/etc/grafana/token")
    source = source_of(folder)
    assert source["jsonData"] == {
        "dbName": "infercost",
        "httpMode": "POST",
        "httpHeaderName1": "Authorization",
    }
    assert source["secureJsonData"] == {"httpHeaderValue1": "Token $__file{/etc/grafana/token}"}
    assert "user" not in source


def test_options_go_before_the_sink_and_a_dollar_sign_stays_one(infercost, tmp_path):
    folder = tmp_path / "p"
    options = ("--url", "http://inside:8086/$a", "--database", 'b: "c" $d', "--dashboards", "/d")
    said = infercost(V2, "provision", str(folder), *options)
    source = source_of(folder)
    # Grafana makes one of two.
    assert source["url"] == "http://inside:8086/$$a"
    assert source["jsonData"]["dbName"] == 'b: "c" $$d'
    assert "secureJsonData" not in source
    assert read(folder, "dashboards")["providers"][0]["options"] == {"path": "/d"}
    assert "without a token" in said


def test_the_rows_of_an_hour_are_a_source_of_their_own(infercost, tmp_path):
    folder = tmp_path / "p"
    infercost(V2, "provision", str(folder), "--hourly")
    sources = read(folder, "datasources")["datasources"]
    assert [(one["uid"], one["jsonData"]["dbName"]) for one in sources] == [
        ("infercost", "infercost"),
        ("infercost_hourly", "infercost_hourly"),
    ]


def test_an_authority_of_ones_own_goes_with_it(infercost, tmp_path):
    authority = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"
    (tmp_path / "ca.pem").write_text(authority)
    folder = tmp_path / "p"
    infercost([*V1, f'ca_file = "{tmp_path}/ca.pem"'], "provision", str(folder))
    source = source_of(folder)
    assert source["jsonData"]["tlsAuthWithCACert"] is True
    assert source["secureJsonData"] == {"tlsCACert": authority}


def test_what_does_not_go_together_is_refused(infercost, tmp_path):
    folder = str(tmp_path / "p")
    for sink, options, words in (
        (V1, ("--user", "reader"), "belong together"),
        (V2, ("--user", "reader", "--secret-file", "/t"), 'api = "v1"'),
        (V2, ("--secret-file", "token"), "whole path"),
        (V2, ("--secret-file", "/a}b"), "whole path"),
        (V2, ("--dashboards", "here"), "whole path"),
        (V2, ("--sink", "other"), "no sink 'other'"),
        ([*V1, 'ca_file = "/nowhere/ca.pem"'], (), "/nowhere/ca.pem: cannot be read"),
    ):
        assert words in infercost(sink, "provision", folder, *options, code=2)
    assert not (tmp_path / "p").exists()
    (tmp_path / "file").write_text("")
    assert "cannot be written" in infercost(V1, "export", str(tmp_path / "file" / "x"), code=2)


def test_without_a_sink_it_says_so(tmp_path):
    config = tmp_path / "infercost.toml"
    config.write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "agent", "-c", str(config), "grafana", "provision", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "no sink is configured" in done.stderr


def test_every_dashboard_finds_the_provisioned_source():
    for text in boards().values():
        (variable,) = [
            v for v in json.loads(text)["templating"]["list"] if v["name"] == "datasource"
        ]
        assert (variable["type"], variable["query"]) == ("datasource", "influxdb")
