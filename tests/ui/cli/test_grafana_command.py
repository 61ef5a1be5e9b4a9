"""`costprobe grafana` writes the files that Grafana reads at startup."""

import json

import pytest
import yaml
from fakes.cli import same
from fakes.command import called

V1 = ['api = "v1"', 'url = "https://influx.example.com:8086"', 'database = "costs"']
V2 = ['api = "v2"', 'url = "http://influx:8086"', 'org = "ml"', 'bucket = "costprobe"']


@pytest.fixture
def costprobe(on_sink):
    """Runs `costprobe grafana` with a sink; returns its output."""
    return lambda sink, *words, code=0: on_sink(sink, "grafana", *words, code=code)


AUTHORITY = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"
# Grafana reads two dollar signs as one.
OTHER = ("--url", "http://inside:8086/$a", "--database", 'b: "c" $d', "--dashboards", "/d")
# A name, the sink, and options.
PROVISIONED = (
    ("a user of InfluxDB 1", V1, ("--user", "reader", "--secret-file", "/etc/grafana/password")),
    ("a token of InfluxDB 2", V2, ("--secret-file", "/etc/grafana/token")),
    ("other addresses and names", V2, OTHER),
    ("an authority of its own", [*V1, 'ca_file = "{folder}/ca.pem"'], ()),
    ("hourly rows", V2, ("--hourly",)),
)


def test_provisioning_files_name_the_sink_and_contain_no_secret(costprobe, tmp_path):
    (tmp_path / "ca.pem").write_text(AUTHORITY)
    folder, texts = tmp_path / "provisioning", []
    for name, sink, options in PROVISIONED:
        lines = [line.replace("{folder}", str(tmp_path)) for line in sink]
        printed = costprobe(lines, "provision", str(folder), *options).splitlines()
        texts += [f"# {name}", *(line for line in printed if not line.endswith(": written"))]
        texts += [
            (folder / kind / "costprobe.yaml").read_text() for kind in ("datasources", "dashboards")
        ]
    texts.append((folder / "alerting" / "costprobe.yaml").read_text())
    same("grafana", "\n".join(texts).replace(str(tmp_path), "/folder"))
    boards = [json.loads(file.read_text()) for file in (folder / "boards").iterdir()]
    chosen = {one["uid"] for one in yaml.safe_load(texts[-3])["datasources"]}
    for board in boards:
        source = board["templating"]["list"][0]
        assert (source["name"], source["current"]["value"] in chosen) == ("datasource", True)


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
