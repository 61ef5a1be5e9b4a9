"""The commands alerts, silence and replay."""

import json
import os
import random
import time
from threading import Event as Flag

import pytest
from costprobe.adapters.store.write import Store
from costprobe.core.incident import Silence
from costprobe.core.schema import make_point
from costprobe.daemon.control import ControlServer, control_requests
from costprobe.ui.cli.silence import silence_line
from costprobe.ui.cli.support.control_client import user_name
from costprobe.ui.incidents import hidden_changes
from daemon.test_control import Parts
from fakes import rows
from fakes.cases import check_all
from fakes.cli import NOW_S, Cli, session, stopped_clock
from fakes.clock import FakeClock
from fakes.command import called
from fakes.documents import checked
from fakes.incidents import incident
from fakes.servers import Scripted

S = 1_000_000_000
TAGS = {"host": "h", "device": "gpu0", "probe": "e"}


@pytest.fixture
def costprobe(tmp_path):
    # Replay evaluates at each of these steps.
    return Cli(tmp_path, '[host]\nname = "h"\n[alerting]\nevaluate_every = "1m"\n')


@pytest.fixture
def store(tmp_path):
    made = Store.open(tmp_path / "costprobe.db", FakeClock(time.time_ns()))
    yield made
    made.close()


def keep(store, alerts=(), silenced=(), **more):
    alerts = [alert.to_document() for alert in alerts]
    store.put_state("alerts", {"alerts": alerts, "silenced": [*silenced], "silences": [], **more})


@pytest.mark.usefixtures("stopped")
def test_listing_states_how_old_it_is_and_what_no_alert_can_find(costprobe, store):
    names = ("device", "probe", "metric", "min_detectable_pct", "rule", "at_least_pct")
    series = (
        ("gpu0", "encoder", "cost", 16.2, "cost-up", 10.0),
        ("gpu0", "encoder", "latency", 12.0, "cost-up", 10.0),
        ("gpu1", "encoder", "cost", 4.0, "cost-up", 10.0),
        ("gpu2", "encoder", "cost", 25.0, None, None),
        ("gpu3", "encoder", "cost", None, "cost-up", 10.0),
    )
    detectable = [dict(zip(names, one, strict=True)) for one in series]
    keep(store, detectable=detectable, noisy_services=[{"service": "chat", "noise_pct": 6.2}])
    session("alerts_of_noise", costprobe.config)
    assert hidden_changes(detectable, "gpu1", "encoder") == []
    keep(store, [incident(since_ns=NOW_S * S - 90 * S)], silenced=["3f2a-1"])
    session("alerts_silenced", costprobe.config)
    # A script must not take the last known state for the present one.
    with stopped_clock(NOW_S + 3600):
        session("alerts_an_hour_later", costprobe.config)


def test_daemon_that_runs_answers_instead_of_the_store(costprobe, store, daemon):
    """A full disk keeps the stored list at what it was before; an answer may be long."""
    keep(store)
    daemon.store_path = store.path
    alerts = [incident(id=str(n)).to_document() for n in range(2000)]
    daemon.listing = {"alerts": alerts, "silenced": [], "silences": []}
    document = json.loads(costprobe("alerts", "--exit-code", "--json", code=1))
    assert (document["source"], len(document["alerts"])) == ("daemon", 2000)
    daemon.store_path = store.path.with_name("other.db")
    assert "daemon that answers has another store" in costprobe("alerts", "--exit-code", code=3)


def alert_row(state, minutes_ago, identity="a1", **fields):
    known = {"id": identity, "severity": "warning", "summary": "it is hot", "cause": "cooling"}
    tags = {"host": "h", "rule": "hot", "state": state, "device": "gpu0"}
    return make_point("alert", tags, {**known, **fields}, (NOW_S - minutes_ago * 60) * S)


@pytest.mark.usefixtures("stopped")
def test_history_has_one_line_per_fired_incident(costprobe):
    rows = (
        alert_row("pending", 61),
        alert_row("firing", 60),
        alert_row("resolved", 15),
        alert_row("pending", 50, "a2"),
        alert_row("resolved", 49, "a2"),
        alert_row("firing", 5, "a3", summary="it is hot again"),
    )
    costprobe.append(rows)
    session("alerts_history", costprobe.config)


class Listing(Parts):
    """The parts of a daemon with a list of alerts and a second notifier, which fails."""

    def alerts(self):
        return self.listing

    def send_test(self, notifier):
        return {"ops": "", "mail": "no such host"} if notifier is None else {notifier: ""}


@pytest.fixture
def daemon(tmp_path):
    alerting = Listing()
    alerting.listing = {"alerts": [], "silenced": [], "silences": []}
    server = ControlServer(
        tmp_path / "control.sock", control_requests(lambda: alerting, dict), Flag()
    )
    server.start()
    yield alerting
    server.close()


def test_silence_is_added_listed_and_ended(costprobe, daemon):
    words = ("--match", "device=gpu*", "--match", "rule=hot", "--for", "2h", "--comment", "a fan")
    output = costprobe("silence", *words)
    (silence,) = daemon.kept.values()
    assert isinstance(silence, Silence)
    assert silence.match == {"device": "gpu*", "rule": "hot"}
    assert silence.ends_ns - silence.starts_ns == 7200 * S
    assert f"costprobe silence end {silence.id}" in output
    assert "has ended" in costprobe("silence", "end", silence.id)
    assert daemon.kept == {}
    assert "there is no silence x" in costprobe("silence", "end", "x", code=2)
    now_ns = time.time_ns()
    later = checked("silence", costprobe("silence", *words, "--starts-in", "30m", "--json"))
    assert later["starts_ns"] >= now_ns + 1800 * S
    assert "starts in 30 min" in silence_line(later, later["starts_ns"] - 1800 * S)


def test_test_alert_prints_the_result_of_each_notifier(costprobe, daemon):
    assert costprobe("alerts", "test", "ops") == "ops: sent\n"
    assert "mail: FAILED: no such host" in costprobe("alerts", "test", code=1)


def test_test_alert_needs_no_daemon(tmp_path):
    config, url = tmp_path / "costprobe.toml", tmp_path / "ops.url"
    with Scripted(lambda *_: (204, {}, b"")) as server:
        url.write_text(server.url)
        config.write_text(
            f'[store]\npath = "{tmp_path}/costprobe.db"\n[[notifier]]\nname = "ops"\nkind = "webhook"\n'
            f'url = "file:{url}"\n[[notifier]]\nname = "chat"\nkind = "webhook"\nurl = "file:{url}2"\n'
        )
        assert called(config, "alerts", "test", "ops").output == "ops: sent\n"
        url.with_name("ops.url2").write_text("https://hooks.slack.com/services/T/B/c4nary5ecret")
        output = called(config, "alerts", "test", code=1).output
        assert "unknown notifier" in called(config, "alerts", "test", "pager", code=2).output
    assert [json.loads(body)["alert"]["test"] for *_, body in server.requests] == [True, True]
    assert 'write kind = "slack"' in output
    assert "c4nary5ecret" not in output


def runs():
    """Rows of a probe of four days, whose latency rises by 10 % after three and a half."""
    rng = random.Random(1)
    began_ns = 1_772_452_800 * S  # 2 March 2026, noon
    made = []
    for index in range(4 * 288):
        time_ns = began_ns + index * 300 * S
        slow = 1.1 if index >= 3.5 * 288 else 1.0
        latency_ms = 8 * slow * rng.lognormvariate(0, 0.008)
        made.append(rows.run(TAGS, time_ns, latency_ms, sm_clock_mhz=1980 / slow, fingerprint="f"))
        made.append(rows.run_cost(TAGS, time_ns, latency_ms * 1e-9, currency="EUR"))
    return made


def test_replay_lists_the_alerts_that_would_have_fired(costprobe):
    costprobe.append(runs())
    (costprobe.folder / "rows.csv").write_text(costprobe("export", "--format", "csv"))
    session("replay", costprobe.config)


def test_replay_reads_csv_with_one_column_per_field(costprobe, tmp_path):
    path = tmp_path / "rows.csv"
    probe = [row for row in runs() if row.measurement == "probe"]
    lines = [f"{row.time_ns / S:.3f},{row.fields['latency_p50_ms']},gpu0,e" for row in probe]
    path.write_text("\n".join(["time,latency_p50_ms,device,probe", *lines]))
    assert "latency of e on gpu0 is +" in costprobe("replay", "--csv", str(path))
    values = [f"{row.time_ns},h,{row.fields['latency_p50_ms']}" for row in probe]
    path.write_text("\n".join(["time,host,value", *values]))
    assert "cost per inference of csv on csv is +" in costprobe("replay", "--csv", str(path))
    # The same level on one host, a step on the other: mixed, they would have neither.
    other = [f"{row.time_ns},quiet,{probe[0].fields['latency_p50_ms']}" for row in probe]
    path.write_text("\n".join(["time,host,value", *values, *other]))
    document = json.loads(costprobe("replay", "--csv", str(path), "--json"))
    assert [alert["labels"]["host"] for alert in document["incidents"]] == ["h"]
    assert document["rows"] == 2 * len(probe)


def test_replay_reads_csv_of_a_service(costprobe, tmp_path):
    """A week whose server becomes 20 % slower on the last day, with names of series."""
    path = tmp_path / "rows.csv"
    header = "service,requests,tokens_in,tokens_out,window_s,cost_total,device_busy_s"
    busy_s = [60 + 2 * (i % 5) + (12 if i > 1700 else 0) for i in range(2016)]
    lines = [f"{1e9 + 300 * i:.0f},chat,90,45000,15000,300,0.2,{s}" for i, s in enumerate(busy_s)]
    named = [line.replace(",", ",cost,", 1) for line in lines]
    path.write_text("\n".join([f"time,measurement,{header}", *named]))
    output = costprobe("replay", "--csv", str(path))
    assert output.startswith("2,016 rows")
    assert "device time per token of chat is +" in output


def test_csv_errors_name_file_and_line(costprobe, tmp_path):
    def check(text, words):
        path = tmp_path / "rows.csv"
        path.write_text(text)
        assert words in costprobe("replay", "--csv", str(path), code=2)

    check_all(
        check,
        [
            ("value\n1", "rows.csv:1: no column `time`"),
            ("time,speed\n1,2", "rows.csv:1: 'speed' is neither a field nor a tag"),
            ("time,measurement,util_pct\n1,gpu,2", "rows.csv:2: no field gpu.util_pct"),
            ("time,service,requests\n1,chat,2", "rows.csv:2: a window of a service needs"),
            ("time,value\nsoon,2", "rows.csv:2: 'soon' is not a time"),
            ("time,value\n1,2\n2,fast", "rows.csv:3: 'fast' is not a number"),
            ("time,value\n1,nan", "rows.csv:2: 'nan' is not a number"),
            ("time,measurement,tags,field,value\n1,probe,a=b,speed,2", "no field probe.speed"),
        ],
    )


def test_user_without_an_account_has_a_name(monkeypatch):
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    # A container may run with any number as its user.
    monkeypatch.setattr(os, "getuid", lambda: 3_000_000_001)
    assert user_name() == "uid 3000000001"
