"""The service at work under a real systemd: it says when it is ready, and is watched, killed, mended.

Every test that needs no host of its own is here, so that one worker of a run installs it once.
"""

import json
import socket

import pytest
from fakes.servers import Scripted

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def host(installed):
    """The service as it was installed; what a test adds to it goes with the test."""
    before = installed.read("/etc/infercost/infercost.toml")
    yield installed
    installed.configure(before)
    installed.run("rm", "-rf", "/etc/systemd/system/infercost.service.d")
    installed.systemctl("daemon-reload")
    installed.systemctl("reset-failed", "infercost", check=False)
    installed.systemctl("restart", "infercost")


def journal(host, *matches):
    """Entries of the service's log as their fields."""
    lines = host.run("journalctl", "-u", "infercost", "-o", "json", "--no-pager", *matches).stdout
    return [json.loads(line) for line in lines.splitlines()]


def is_measuring(host):
    return "measuring" in host.property("StatusText")


def running_pid(host):
    """Of the service that is up; None while it is not."""
    is_up = host.property("ActiveState") == "active" and host.property("SubState") == "running"
    return int(host.property("MainPID")) if is_up else None


def status(host):
    return json.loads(host.infercost("status", "--json", check=False).stdout)


def test_a_bad_configuration_is_said_and_leaves_what_runs(installed):
    pid = installed.property("MainPID")
    good = installed.read("/etc/infercost/infercost.toml")
    installed.configure('[telemetry]\nevery = "never"\n')
    done = installed.service("install", check=False)
    installed.configure(good)
    assert done.returncode == 1
    assert "telemetry.every" in done.stdout + done.stderr
    assert "mend the configuration" in done.stderr
    assert installed.property("MainPID") == pid


def test_it_is_put_into_an_image_without_starting_anything(installed):
    installed.run("mkdir", "-p", "/srv/image/etc", "/srv/image/usr", "/srv/image/run")
    installed.run("sh", "-c", "touch /srv/image/etc/passwd /srv/image/etc/group")
    said = installed.service("install", "--root", "/srv/image").stdout
    assert "/srv/image/etc/infercost/infercost.toml: written" in said
    assert "infercost:" in installed.read("/srv/image/etc/passwd")
    assert installed.exists("/srv/image/usr/local/lib/systemd/system/infercost.service")
    installed.service("uninstall", "--root", "/srv/image", "--purge")
    left = installed.run("find", "/srv/image", "-type", "f", "-not", "-path", "*/etc/*").stdout
    assert left == ""
    assert "infercost" not in installed.read("/srv/image/etc/passwd")


def test_it_is_ready_when_its_devices_are_known(host):
    assert host.property("Type") == "notify"
    assert host.property("StatusText") == "measuring 1 devices with 0 probes"
    assert status(host)["devices"][0]["name"] == "cpu"


def test_it_runs_with_no_more_than_it_needs(host):
    pid = host.property("MainPID")
    fields = dict(
        line.split(":\t", 1)
        for line in host.read(f"/proc/{pid}/status").splitlines()
        if ":\t" in line
    )
    assert fields["NoNewPrivs"] == "1"
    assert fields["Seccomp"] == "2"
    assert {int(fields[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {0}
    assert "infercost" in host.run("ps", "-o", "user:20=", "-p", pid).stdout
    limits = host.read(f"/proc/{pid}/limits")
    (core,) = (line for line in limits.splitlines() if line.startswith("Max core file size"))
    assert core.split()[4:6] == ["0", "0"]
    # The sensor child lives in the same sandbox, and it is the only one without probes.
    assert len(host.run("pgrep", "-u", "infercost").stdout.split()) == 2


def test_a_reload_takes_a_new_file_and_refuses_one_with_an_error(host):
    pid = running_pid(host)
    good = host.read("/etc/infercost/infercost.toml")
    host.configure(good + '[host]\nname = "renamed"\n')
    host.systemctl("reload", "infercost")
    host.wait_for(lambda: status(host)["host"] == "renamed")
    host.configure(good + "[host]\nnam = 1\n")
    assert host.systemctl("reload", "infercost", check=False).returncode != 0
    assert any("host.nam" in str(entry["MESSAGE"]) for entry in journal(host))
    host.configure(good)
    assert running_pid(host) == pid
    assert status(host)["host"] == "renamed"


def test_killed_it_comes_back_and_nothing_stored_is_lost(host):
    pid = running_pid(host)
    rows = host.infercost("export", "--measurement", "device", "--since", "1h").stdout.splitlines()
    host.run("kill", "-9", pid)
    host.wait_for(lambda: running_pid(host) not in {None, pid} and is_measuring(host))
    assert set(rows) <= set(
        host.infercost("export", "--measurement", "device", "--since", "1h").stdout.splitlines()
    )
    assert host.infercost("store", "check").returncode == 0
    # Its children went with it.
    assert len(host.run("pgrep", "-u", "infercost").stdout.split()) == 2


def test_one_that_hangs_is_ended_by_the_watchdog_and_started_again(host):
    host.drop_in("quick", "[Service]\nWatchdogSec=3s\nTimeoutAbortSec=1s\nRestartSec=100ms\n")
    host.systemctl("restart", "infercost")
    pid = running_pid(host)
    host.run("kill", "-STOP", pid)
    host.wait_for(lambda: running_pid(host) not in {None, pid} and is_measuring(host))
    said = host.run("journalctl", "-u", "infercost", "--no-pager").stdout
    assert "Watchdog timeout" in said


def test_it_stops_of_itself_in_five_seconds(host):
    host.drop_in("strict", "[Service]\nTimeoutStopSec=5s\n")
    host.systemctl("stop", "infercost")
    # One that had to be killed would have ended by its timeout.
    assert host.property("Result") == "success"
    assert host.property("ExecMainStatus") == "0"
    assert host.run("pgrep", "-u", "infercost", check=False).stdout == ""


def test_its_log_has_levels_and_fields(host):
    host.configure(host.read("/etc/infercost/infercost.toml") + "[host]\nnam = 1\n")
    host.run("systemctl", "kill", "--signal=HUP", "--kill-whom=main", "infercost")
    host.wait_for(lambda: journal(host, "INFERCOST_PART=daemon.service", "PRIORITY=3"))
    entry = journal(host, "INFERCOST_PART=daemon.service", "PRIORITY=3")[-1]
    assert "not reloaded" in entry["MESSAGE"]
    assert entry["SYSLOG_IDENTIFIER"] == "infercost"
    assert entry["CODE_FILE"].endswith("agent/daemon/service.py")


def test_a_secret_that_belongs_to_root_alone_reaches_the_service_and_no_log(host):
    with Scripted(lambda *_: (204, {}, b"")) as server:
        host.write("/etc/infercost/influxdb.token", "canary-of-a-token")
        host.drop_in(
            "token", "[Service]\nLoadCredential=influxdb-token:/etc/infercost/influxdb.token\n"
        )
        host.configure(
            host.read("/etc/infercost/infercost.toml")
            + f'[[sink]]\napi = "v2"\nurl = "{server.url}"\norg = "o"\nbucket = "b"\n'
            'token_credential = "influxdb-token"\nflush_every = "1s"\n'
        )
        host.systemctl("restart", "infercost")
        host.wait_for(lambda: server.requests)
        host.wait_for(lambda: status(host)["sinks"]["influxdb"]["sent"])
        (_, _, headers, _), *_ = server.requests
        assert headers["Authorization"] == "Token canary-of-a-token"
        assert "canary" not in host.run("journalctl", "--no-pager").stdout
        host.systemctl("stop", "infercost")


def test_health_is_served_on_the_loopback_where_it_is_asked_for(host):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    host.configure(
        host.read("/etc/infercost/infercost.toml") + f'[http]\nlisten = "127.0.0.1:{port}"\n'
    )
    host.systemctl("reload", "infercost")
    host.wait_for(lambda: status(host)["http"]["port"] == port)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = client.recv(65536)
    assert answer.startswith((b"HTTP/1.0 200", b"HTTP/1.0 503"))


def test_the_page_is_served_from_its_own_unit_and_can_write_nothing(host):
    host.systemctl("start", "infercost-dashboard")
    try:
        host.wait_for(lambda: page_of(9470).startswith(b"HTTP/1.1 200"))
        assert b"infercost" in page_of(9470)
        pid = host.run("systemctl", "show", "-P", "MainPID", "infercost-dashboard").stdout.strip()
        mounts = host.read(f"/proc/{pid}/mountinfo")
        (store,) = (line for line in mounts.splitlines() if " / / " in line)
        assert store.split()[5].startswith("ro")
    finally:
        host.systemctl("stop", "infercost-dashboard")
    assert (
        host.run("systemctl", "show", "-P", "Result", "infercost-dashboard").stdout.strip()
        == "success"
    )


def page_of(port):
    """What the loopback, which the host shares with us, answers there."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = b""
            while part := client.recv(65536):
                answer += part
            return answer
    except OSError:
        return b""
