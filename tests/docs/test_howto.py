"""The how-to guides work: their configuration and commands run on real and scripted servers, as pasted."""

import json
import re
from pathlib import Path

import pytest
import yaml
from costprobe.core.schema import SCHEMA
from costprobe.ui.grafana.provisioning import boards
from docs_pages import DOCS, blocks, commands, replaced, run, section
from fakes.influx_v2 import TOKEN, FakeInfluxV2
from fakes.nvml import FakeNvml
from fakes.page_examples import missing_lines
from fakes.servers import Alertmanager, Scripted, running

EXPOSITIONS = Path(__file__).parents[1] / "adapters" / "engines" / "exposition"

pytestmark = pytest.mark.timeout(900)


def guide(name, heading):
    return section(f"howto/{name}.md", f"## {heading}")


@pytest.fixture
def write(tmp_path):
    """Return a function that writes costprobe.toml with a store next to it."""

    def write(text):
        store = f'\n[store]\npath = "{tmp_path}/costprobe.db"\n'
        (tmp_path / "costprobe.toml").write_text(text + store)

    return write


def test_price(write, tmp_path):
    text = guide("first_hour", "My price")
    write(next(iter(blocks(text, "toml").values())))
    env = FakeNvml(tmp_path, gpus=4).env()
    check, show = commands(text)
    assert "good" in run(check, tmp_path, env=env)
    shown = run(show, tmp_path, env=env).replace("NVIDIA Fake 80GB", "NVIDIA H100 80GB HBM3")
    assert missing_lines("howto/first_hour.md", shown, having="rent:") == []


def test_alerts_in_chat(write, tmp_path):
    text = guide("first_hour", "Alerts in chat and email")
    address = tmp_path / "chat.url"
    write(replaced(blocks(text, "toml")[0], {"/etc/costprobe/chat.url": address}))
    (tmp_path / "history.csv").write_text(blocks(text, "csv")["history.csv"])
    _, check, doctor, test, _, replay = commands(text)
    with Scripted(lambda *_: (200, {}, b"")) as chat:
        address.write_text(chat.url.replace("http:", "json:"))
        address.chmod(0o600)
        assert "good" in run(check, tmp_path)
        assert re.search(r"ok\s+notifier chat", run(doctor, tmp_path, codes=(0, 1)))
        assert run(test, tmp_path) == "chat: sent\n"
        assert len(chat.requests) == 1
    assert run(replay, tmp_path).startswith("2 rows")


def test_influxdb_1x(write, tmp_path, own_influxdb):
    text = guide("databases", "InfluxDB 1.x")
    password = tmp_path / "influxdb.password"
    changes = {
        "http://influx.example.com:8086": own_influxdb.url,
        "/etc/costprobe/influxdb.password": password,
    }
    write(replaced(blocks(text, "toml")[0], changes))
    show, apply = commands(text)
    assert "would create: database costprobe, kept for 30d" in run(show, tmp_path)
    assert "created: " in run(apply, tmp_path)
    assert "nothing is missing" in run(apply, tmp_path)
    assert password.stat().st_mode & 0o777 == 0o600
    check, doctor, *_ = commands((DOCS / "howto" / "databases.md").read_text())
    assert "good" in run(check, tmp_path)
    assert re.search(r"ok\s+sink influxdb", run(doctor, tmp_path, codes=(0, 1)))


def test_influxdb_2x(write, tmp_path):
    text = guide("databases", "InfluxDB 2.x")
    token, admin = tmp_path / "influxdb.token", tmp_path / "admin.token"
    admin.write_text(TOKEN)
    with FakeInfluxV2() as server:
        changes = {
            "https://influx.example.com:8086": server.url,
            "/etc/costprobe/influxdb.token": token,
        }
        write(replaced(blocks(text, "toml")[0], changes))
        show, apply = (
            replaced(line, {"/root/influxdb-admin.token": admin}) for line in commands(text)
        )
        assert "would create" in run(show, tmp_path)
        assert server.changes == []
        assert "created: " in run(apply, tmp_path)
        assert set(server.kept) == {"buckets", "dbrps", "tasks", "authorizations"}
    assert token.stat().st_mode & 0o777 == 0o600


def test_grafana(write, tmp_path):
    write(blocks(guide("databases", "InfluxDB 2.x"), "toml")[0])
    text = guide("databases", "Grafana")
    export, provision, hourly = commands(text)
    run(export, tmp_path)
    assert {path.name for path in (tmp_path / "dashboards").iterdir()} == set(boards())
    run(provision, tmp_path)
    for named in re.findall(r"^\| `(provisioning/[^`]+)` \|", text, re.MULTILINE):
        assert list(tmp_path.glob(named)), named
    run(hourly, tmp_path)
    sources = yaml.safe_load((tmp_path / "provisioning/datasources/costprobe.yaml").read_text())
    assert [source["name"] for source in sources["datasources"]] == [
        "costprobe",
        "costprobe_hourly",
    ]
    assert "$__file{/etc/grafana/influxdb.token}" in json.dumps(sources)


class RoutedAlertmanager(Alertmanager):
    """An Alertmanager with the routing of the guide."""

    def __init__(self, folder, *, routing):
        super().__init__(folder)
        self._config.write_text(routing)


def test_alertmanager(write, tmp_path, wait_until):
    text = guide("databases", "Alertmanager")
    check, test, _ = commands(text)
    with Scripted(lambda *_: (200, {}, b"")) as receiver:
        changes = {"http://127.0.0.1:9377": receiver.url, "group_wait: 30s": "group_wait: 0s"}
        routing = replaced(blocks(text, "yaml")["alertmanager.yml"], changes)
        folder = tmp_path / "alertmanager"
        server = running(RoutedAlertmanager, folder, "prometheus-alertmanager", routing=routing)
        with server as alertmanager:
            write(replaced(blocks(text, "toml")[0], {"http://127.0.0.1:9093": alertmanager.url}))
            assert "good" in run(check, tmp_path)
            assert "pager: sent" in run(test, tmp_path)
            (found,) = alertmanager.active(alertname="test")
            assert {"alertname", "severity", "host"} <= set(found["labels"])
            assert {"summary", "id"} <= set(found["annotations"])
            wait_until(lambda: any(request[1] == "/team" for request in receiver.requests))


@pytest.mark.parametrize(("engine", "port"), [("vLLM", 8000), ("Triton", 8002)])
def test_engines(write, tmp_path, engine, port):
    text = guide("served_models", engine)
    exposition = (EXPOSITIONS / f"{engine.lower()}.txt").read_bytes()
    kind = {"Content-Type": "text/plain; version=0.0.4"}
    env = FakeNvml(tmp_path, gpus=2).env()
    with Scripted(lambda *_: (200, kind, exposition)) as server:
        there = f"http://127.0.0.1:{port}"
        write(replaced(blocks(text, "toml")[0], {there: server.url}))
        check, doctor, *_ = commands(text)
        assert "good" in run(check, tmp_path)
        output = run(doctor, tmp_path, codes=(0, 1), env=env)
        (line,) = (line for line in output.splitlines() if "service " in line and "http" in line)
        assert line.startswith("ok "), output
        if engine == "vLLM":
            shown = line.replace(server.url, there)
            assert (
                missing_lines("howto/served_models.md", shown, having="counts cached_tokens") == []
            )


def test_mig(write, tmp_path):
    text = guide("kubernetes", "MIG")
    fake = FakeNvml(tmp_path, gpus=1)
    fake.gpus[0].split(3, 2)
    write(next(block for block in blocks(text, "toml").values() if "[[price]]" in block))
    env = {**fake.env(), "COSTPROBE_CONFIG": str(tmp_path / "costprobe.toml")}
    _, show = commands(text)
    output = run(show, tmp_path, env=env)
    assert "gpu0.mig0" in output
    assert "$1.80/h" in output, "three slices at 0.60"
    assert "$2.40/h" in output


@pytest.mark.parametrize("block", [0, 1, 2], ids=["file", "command", "address"])
def test_spot_prices(tmp_path, block):
    page = guide("finance", "A price from a source")
    (shape,) = re.findall(r'`(\{"time": [^`]+\})`', page)
    aws = {"SpotPriceHistory": [{"Timestamp": "2026-05-28T14:00:00Z", "SpotPrice": "3.21"}]}
    command = f'command = ["echo", {json.dumps(json.dumps(aws))}]'
    (tmp_path / "spot.csv").write_text(blocks(page, "csv")["spot.csv"])
    with Scripted(lambda *_: (200, {}, shape.encode())) as server:
        text = list(blocks(page, "toml").values())[block]
        text = re.sub(
            r"command = \[.*?^\]", lambda _: command, text, flags=re.DOTALL | re.MULTILINE
        )
        text = text.replace("https://prices.example.com", server.url)
        (tmp_path / "costprobe.toml").write_text(f"[telemetry]\ngpus = false\n{text}")
        check, show = commands(page)
        assert "good" in run(check, tmp_path)
        assert f"${3.21 if block else 2.98}/h (spot)" in run(show, tmp_path)


def test_hourly_rules_record_fields_of_the_series():
    rules = yaml.safe_load((DOCS / "howto" / "vmalert.yml").read_text())
    known = {f"{name}_{field}" for name, one in SCHEMA.items() for field in one.fields}
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        assert rule["record"] in known
        assert f'{rule["record"]}{{db="costprobe"}}[1h]' in rule["expr"]
