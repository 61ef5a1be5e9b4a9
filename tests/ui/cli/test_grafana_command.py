"""`costprobe grafana` writes the files that Grafana reads at startup."""

import json

import pytest
import yaml
from costprobe.ui.grafana.provisioning import alert_rules, boards
from fakes.command import called

V1 = ['api = "v1"', 'url = "https://influx.example.com:8086"', 'database = "costs"']
V2 = ['api = "v2"', 'url = "http://influx:8086"', 'org = "ml"', 'bucket = "costprobe"']


@pytest.fixture
def costprobe(tmp_path):
    """Run `costprobe grafana` with a sink; return its output."""

    def run(sink, *arguments, code=0):
        config = tmp_path / "costprobe.toml"
        config.write_text("[[sink]]\n" + "".join(f"{line}\n" for line in sink))
        return called(config, "grafana", *arguments, code=code).output

    return run


def read(folder, kind):
    return yaml.safe_load((folder / kind / "costprobe.yaml").read_text())


def source_of(folder):
    document = read(folder, "datasources")
    assert document["apiVersion"] == 1
    (source,) = document["datasources"]
    return source


def test_provision_for_1x_with_a_user_whose_password_stays_in_its_file(costprobe, tmp_path):
    folder = tmp_path / "provisioning"
    password = ("--user", "reader", "--secret-file", "/etc/grafana/influx.password")
    printed = costprobe(V1, "provision", str(folder), *password)
    assert source_of(folder) == {
        "name": "costprobe",
        "uid": "costprobe",
        "type": "influxdb",
        "access": "proxy",
        "url": "https://influx.example.com:8086",
        "user": "reader",
        "jsonData": {"dbName": "costs", "httpMode": "POST"},
        "secureJsonData": {"password": "$__file{/etc/grafana/influx.password}"},
    }
    (provider,) = read(folder, "dashboards")["providers"]
    assert provider["options"] == {"path": "/var/lib/grafana/dashboards/costprobe"}
    assert (provider["type"], provider["allowUiUpdates"]) == ("file", False)
    assert "restart Grafana" in printed


def test_provisioned_alert_rule_queries_the_provisioned_data_source(costprobe, tmp_path):
    folder = tmp_path / "provisioning"
    costprobe(V1, "provision", str(folder))
    document = read(folder, "alerting")
    assert document == alert_rules("costprobe")
    (rule,) = document["groups"][0]["rules"]
    query, last, threshold = rule["data"]
    assert query["datasourceUid"] == source_of(folder)["uid"]
    # The query's newest value, and whether it is above 0.
    assert [one["datasourceUid"] for one in (last, threshold)] == ["__expr__"] * 2
    chain = [(one["refId"], one["model"].get("expression")) for one in rule["data"]]
    assert chain == [("A", None), ("B", "A"), ("C", "B")]
    assert rule["condition"] == "C"
    # The panel that shows it.
    board = json.loads(boards()["health.json"])
    assert rule["dashboardUid"] == board["uid"]
    (panel,) = [panel for panel in board["panels"] if panel["id"] == rule["panelId"]]
    assert panel["title"] == "Agents silent"
    # Grafana expands what follows a dollar sign.
    assert "$" not in json.dumps(rule["annotations"])


def test_what_the_data_source_has_of_sink_and_options(costprobe, tmp_path):
    folder = tmp_path / "p"
    authority = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"
    (tmp_path / "ca.pem").write_text(authority)
    own_ca = [*V1, f'ca_file = "{tmp_path}/ca.pem"']
    options = ("--url", "http://inside:8086/$a", "--database", 'b: "c" $d', "--dashboards", "/d")
    header = {"httpMode": "POST", "httpHeaderName1": "Authorization"}
    token = {"httpHeaderValue1": "Token $__file{/etc/grafana/token}"}
    # Grafana reads two dollar signs as one.
    named = {"dbName": 'b: "c" $$d', "httpMode": "POST"}
    trusted = {"dbName": "costs", "httpMode": "POST", "tlsAuthWithCACert": True}
    for sink, words, shown, secret in (
        (V2, ("--secret-file", "/etc/grafana/token"), {"dbName": "costprobe", **header}, token),
        (V2, options, named, None),
        (own_ca, (), trusted, {"tlsCACert": authority}),
    ):
        printed = costprobe(sink, "provision", str(folder), *words)
        source = source_of(folder)
        assert (source["jsonData"], source.get("secureJsonData")) == (shown, secret)
        assert "user" not in source
        assert ("without a token" in printed) is (words == options)
        if words == options:
            assert source["url"] == "http://inside:8086/$$a"
            assert read(folder, "dashboards")["providers"][0]["options"] == {"path": "/d"}
    costprobe(V2, "provision", str(folder), "--hourly")
    sources = read(folder, "datasources")["datasources"]
    assert [(one["uid"], one["jsonData"]["dbName"]) for one in sources] == [
        ("costprobe", "costprobe"),
        ("costprobe_hourly", "costprobe_hourly"),
    ]


def test_conflicting_options_are_rejected(costprobe, tmp_path):
    folder = str(tmp_path / "p")
    for sink, options, words in (
        (V1, ("--user", "reader"), "belong together"),
        (V2, ("--user", "reader", "--secret-file", "/t"), 'api = "v1"'),
        (V2, ("--secret-file", "token"), "absolute path"),
        (V2, ("--secret-file", "/a}b"), "absolute path"),
        (V2, ("--dashboards", "here"), "absolute path"),
        (V2, ("--sink", "other"), "unknown sink 'other'"),
        ([*V1, 'ca_file = "/nowhere/ca.pem"'], (), "/nowhere/ca.pem: cannot be read"),
    ):
        assert words in costprobe(sink, "provision", folder, *options, code=2)
    assert not (tmp_path / "p").exists()
    (tmp_path / "file").write_text("")
    assert "cannot be written" in costprobe(V1, "export", str(tmp_path / "file" / "x"), code=2)


def test_database_without_influxql_is_refused_with_what_to_do(costprobe, tmp_path, victoria):
    sink = ['api = "v2"', f'url = "{victoria.url}"', 'bucket = "costprobe"']
    provision = costprobe(sink, "provision", str(tmp_path / "out"), code=2)
    assert "without InfluxQL" in provision
    assert "grafana export FOLDER --source prometheus" in " ".join(provision.split())
    assert not (tmp_path / "out").exists()
    for words in (("setup",), ("setup", "--apply"), ("setup", "--tasks", str(tmp_path / "out"))):
        done = called(tmp_path / "costprobe.toml", "influx", *words, code=2)
        assert "nothing has to be created" in " ".join(done.output.split())
