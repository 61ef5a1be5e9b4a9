"""The how-to guides work: their commands run on real and on scripted servers."""

import json
import re
from pathlib import Path

import pytest
import yaml
from costprobe.ui.grafana.provisioning import boards
from docs_pages import DOCS, blocks, commands, replaced, run, section
from fakes.daemon import DaemonProcess
from fakes.influx_v2 import TOKEN, FakeInfluxV2
from fakes.nvml import FakeNvml
from fakes.page_examples import missing_lines
from fakes.scenes import QUICK_STATUS
from fakes.servers import Alertmanager, Scripted, running

EXPOSITIONS = Path(__file__).parents[1] / "adapters" / "engines" / "exposition"

pytestmark = pytest.mark.timeout(900)


def guide(name):
    return (DOCS / "howto" / f"{name}.md").read_text()


@pytest.fixture
def write(tmp_path):
    """Return a function that writes costprobe.toml with a store next to it."""

    def write(text):
        store = f'\n[store]\npath = "{tmp_path}/costprobe.db"\n'
        (tmp_path / "costprobe.toml").write_text(text + store)

    return write


@pytest.fixture
def daemon_with(tmp_path):
    """Return a function that starts a daemon on costprobe.toml in the test's folder."""
    made = []

    def start(text, **env):
        daemon = DaemonProcess(tmp_path, env)
        made.append(daemon)
        daemon.start(QUICK_STATUS + text)
        return daemon

    yield start
    for daemon in made:
        daemon.stop()


def known(daemon, name):
    """Return the last status document of a daemon; None before the first."""
    try:
        return daemon.state(name)
    except KeyError:
        return None


def test_influxdb_1x(write, tmp_path, own_influxdb):
    part = section("howto/influxdb.md", "## InfluxDB 1.x")
    password = tmp_path / "influxdb.password"
    changes = {
        "http://influx.example.com:8086": own_influxdb.url,
        "/etc/costprobe/influxdb.password": password,
    }
    write(replaced(blocks(part, "toml")[0], changes))
    show, apply = commands(part)
    assert "would create: database costprobe, kept for 30d" in run(show, tmp_path)
    assert "created: " in run(apply, tmp_path)
    assert "nothing is missing" in run(apply, tmp_path)
    assert password.stat().st_mode & 0o777 == 0o600
    check, doctor, status = commands(guide("influxdb").split("## InfluxDB 1.x")[0])
    assert "good" in run(check, tmp_path)
    assert re.search(r"ok\s+sink influxdb", run(doctor, tmp_path, codes=(0, 1)))
    run(status, tmp_path, codes=(0, 1))


def test_influxdb_2x(write, tmp_path):
    part = section("howto/influxdb.md", "## InfluxDB 2.x")
    token, admin = tmp_path / "influxdb.token", tmp_path / "admin.token"
    admin.write_text(TOKEN)
    with FakeInfluxV2() as server:
        changes = {
            "https://influx.example.com:8086": server.url,
            "/etc/costprobe/influxdb.token": token,
        }
        write(replaced(blocks(part, "toml")[0], changes))
        lines = [replaced(line, {"/root/influxdb-admin.token": admin}) for line in commands(part)]
        show, apply = lines
        assert "would create" in run(show, tmp_path)
        assert server.changes == []
        assert "created: " in run(apply, tmp_path)
        assert {kind: len(made) for kind, made in server.kept.items()} == {
            "buckets": 2,
            "dbrps": 2,
            "tasks": 2,
            "authorizations": 1,
        }
    assert token.stat().st_mode & 0o777 == 0o600
    run("costprobe -c costprobe.toml influx setup --tasks flux", tmp_path)
    assert {path.name for path in (tmp_path / "flux").iterdir()} == {"hourly.flux", "deadman.flux"}


def test_grafana(write, tmp_path):
    write(blocks(section("howto/influxdb.md", "## InfluxDB 2.x"), "toml")[0])
    text = guide("grafana")
    export, provision, hourly = commands(text)
    run(export, tmp_path)
    assert {path.name for path in (tmp_path / "dashboards").iterdir()} == set(boards())
    run(provision, tmp_path)
    for named in re.findall(r"^\| `(provisioning/[^`]+)` \|", text, re.MULTILINE):
        found = list(tmp_path.glob(named))
        assert found, named
        assert not any("influxdb.token" in path.read_text() for path in found if "boards" in named)
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


def test_alertmanager(daemon_with, tmp_path):
    text = guide("alertmanager")
    routing = blocks(text, "yaml")["alertmanager.yml"]
    with (
        Scripted(lambda *_: (200, {}, b"")) as receiver,
        running(
            RoutedAlertmanager,
            tmp_path / "alertmanager",
            "prometheus-alertmanager",
            routing=replaced(
                routing,
                {"http://127.0.0.1:9377": receiver.url, "group_wait: 30s": "group_wait: 0s"},
            ),
        ) as alertmanager,
    ):
        config = replaced(blocks(text, "toml")[0], {"http://127.0.0.1:9093": alertmanager.url})
        daemon = daemon_with(config)
        check, test, alerts = commands(text)
        assert "good" in run(check, tmp_path)
        daemon.wait_for((tmp_path / "control.sock").exists)
        assert "pager: sent" in run(test, tmp_path)
        (found,) = alertmanager.active(alertname="test")
        assert {"alertname", "severity", "host"} <= set(found["labels"])
        assert {"summary", "id"} <= set(found["annotations"])
        daemon.wait_for(lambda: any(request[1] == "/team" for request in receiver.requests))
        daemon.wait_for(lambda: known(daemon, "alerts"))
        run(alerts, tmp_path)


@pytest.mark.parametrize(
    ("name", "service", "port"), [("vllm", "chat", 8000), ("triton", "ranker", 8002)]
)
def test_engines(daemon_with, tmp_path, name, service, port):
    text = guide(name)
    exposition = (EXPOSITIONS / f"{name}.txt").read_bytes()
    kind = {"Content-Type": "text/plain; version=0.0.4"}
    env = FakeNvml(tmp_path, gpus=2).env()
    with Scripted(lambda *_: (200, kind, exposition)) as server:
        there = f"http://127.0.0.1:{port}"
        config = blocks(text, "toml")[0]
        daemon = daemon_with(replaced(config, {there: server.url}), **env)
        check, doctor, *looks = commands(text)
        assert "good" in run(check, tmp_path)
        output = run(doctor, tmp_path, codes=(0, 1), env=env)
        (line,) = (line for line in output.splitlines() if f"service {service}: http" in line)
        assert line.startswith("ok "), output
        if name == "vllm":
            assert missing_lines("howto/vllm.md", line.replace(server.url, there)) == []
        daemon.wait_for(lambda: known(daemon, "status"))
        status, *series = looks
        assert f"service  {service}" in run(status, tmp_path)
        for look in series:
            # The first window has rows; until then the command prints a message instead.
            run(look, tmp_path)


def test_mig(tmp_path):
    text = guide("mig")
    fake = FakeNvml(tmp_path, gpus=1)
    fake.gpus[0].split(3, 2)
    prices = [block for block in blocks(text, "toml").values() if "[[price]]" in block]
    (tmp_path / "costprobe.toml").write_text(prices[0])
    env = {**fake.env(), "COSTPROBE_CONFIG": str(tmp_path / "costprobe.toml")}
    status, show = commands(text)
    output = run(show, tmp_path, env=env)
    assert "gpu0.mig0" in output
    assert "$1.80/h" in output, "three slices at 0.60"
    assert "$2.40/h" in output
    run(status, tmp_path, codes=(0, 1), env=env)


def test_price(tmp_path):
    text = guide("price")
    (tmp_path / "costprobe.toml").write_text(next(iter(blocks(text, "toml").values())))
    env = FakeNvml(tmp_path, gpus=4).env()
    check, show = commands(text)
    assert "good" in run(check, tmp_path, env=env)
    shown = run(show, tmp_path, env=env).replace("NVIDIA Fake 80GB", "NVIDIA H100 80GB HBM3")
    assert missing_lines("howto/price.md", shown) == []


def test_alerts_in_chat(write, tmp_path):
    text = guide("slack")
    address = tmp_path / "chat.url"
    write(replaced(blocks(text, "toml")[0], {"/etc/costprobe/chat.url": address}))
    (tmp_path / "history.csv").write_text(blocks(text, "csv")["history.csv"])
    _, check, doctor, test, _, replay = commands(text)
    with Scripted(lambda *_: (200, {}, b"")) as chat:
        address.write_text(chat.url.replace("http:", "json:"))
        address.chmod(0o600)
        assert "good" in run(check, tmp_path)
        assert re.search(r"ok\s+notifier chat", run(doctor, tmp_path, codes=(0, 1)))
        assert missing_lines("howto/slack.md", run(test, tmp_path)) == []
        assert len(chat.requests) == 1
    assert run(replay, tmp_path).startswith("2 rows")


def test_first_steps_are_short_and_begin_with_what_to_paste():
    for name in ("price", "slack", "grafana", "my_model", "vllm", "kubernetes"):
        text = guide(name)
        assert len(text.split()) <= 400, name
        assert re.search(r"^```(\w+)", text, re.MULTILINE)[1] in ("toml", "sh", "python"), name


@pytest.mark.processes
def test_spot_prices(tmp_path):
    text = guide("spot_prices")
    (tmp_path / "spot.csv").write_text(blocks(text, "csv")["spot.csv"])
    first = next(iter(blocks(text, "toml").values()))
    (tmp_path / "costprobe.toml").write_text(f"[telemetry]\ngpus = false\n{first}")
    check, show, *past = commands(text)
    assert "good" in run(check, tmp_path)
    assert "$2.98/h (spot)" in run(show, tmp_path)
    for line in past:
        run(line, tmp_path, codes=(0, 1))


@pytest.mark.parametrize("block", [1, 2])
def test_spot_prices_from_elsewhere(tmp_path, block):
    text = list(blocks(guide("spot_prices"), "toml").values())[block]
    (shape,) = re.findall(r'`(\{"time": [^`]+\})`', guide("spot_prices"))
    aws = {"SpotPriceHistory": [{"Timestamp": "2026-05-28T14:00:00Z", "SpotPrice": "3.21"}]}
    with Scripted(lambda *_: (200, {}, shape.encode())) as server:
        if block == 1:
            command = f'command = ["echo", {json.dumps(json.dumps(aws))}]'
            text = re.sub(
                r"command = \[.*?^\]", lambda _: command, text, flags=re.DOTALL | re.MULTILINE
            )
        else:
            text = replaced(text, {"https://prices.example.com": server.url})
        (tmp_path / "costprobe.toml").write_text(f"[telemetry]\ngpus = false\n{text}")
        assert "$3.21/h (spot)" in run("costprobe -c costprobe.toml price show", tmp_path)
