"""The service under a real systemd: installed, watched, killed, restarted, upgraded, uninstalled.

All tests that boot a host are in this file, so that one worker of a run boots and installs once.
"""

import json

import pytest
from fakes.servers import Scripted, answered
from fakes.wheels import NEXT_VERSION, ROOT, VERSION

pytestmark = pytest.mark.timeout(900)
# Runs the demo until it has opened its store.
DEMO = """
costprobe run >/tmp/demo 2>&1 &
until grep 'store: ' /tmp/demo >/dev/null; do sleep 0.1; done
kill -INT $!
wait
cat /tmp/demo
"""
DROP_INS = "/etc/systemd/system/costprobe.service.d"


@pytest.fixture
def host(installed):
    """The installed service; the changes of a test are reverted after it."""
    before = installed.read("/etc/costprobe/costprobe.toml")
    yield installed
    if installed.exists(DROP_INS):
        installed.run("rm", "-rf", DROP_INS)
        installed.systemctl("daemon-reload")
    elif (
        installed.read("/etc/costprobe/costprobe.toml") == before
        and installed.property("ActiveState") == "active"
    ):
        return
    installed.configure(before)
    installed.systemctl("reset-failed", "costprobe", check=False)
    installed.systemctl("restart", "costprobe")


def journal(host, *matches):
    """The entries in the log of the service, each as its fields."""
    lines = host.run("journalctl", "-u", "costprobe", "-o", "json", "--no-pager", *matches).stdout
    return [json.loads(line) for line in lines.splitlines()]


def is_measuring(host):
    return "measuring" in host.property("StatusText")


def running_pid(host):
    """The process id of the running service; None while it is not running."""
    is_up = host.property("ActiveState") == "active" and host.property("SubState") == "running"
    return int(host.property("MainPID")) if is_up else None


def status(host):
    return json.loads(host.costprobe("status", "--json", check=False).stdout)


def device_rows(host):
    """The device rows of the store, as lines."""
    rows = host.costprobe("export", "--measurement", "device", "--since", "1h")
    return set(rows.stdout.splitlines())


def version(host):
    return status(host)["version"]


def test_installation_writes_an_example_and_restrictive_modes(host):
    assert "an example; add your prices" in host.first_output
    assert host.property("User") == "costprobe"
    assert host.systemctl("is-enabled", "costprobe").stdout.strip() == "enabled"
    paths = "/etc/costprobe/costprobe.toml /var/lib/costprobe /var/lib/costprobe/costprobe.db"
    modes = f"stat -c '%a %U %G' {paths} /run/costprobe"
    assert host.run("sh", "-c", modes).stdout.splitlines() == [
        "640 root costprobe",
        "750 costprobe costprobe",
        "640 costprobe costprobe",
        "700 costprobe costprobe",
    ]


def test_other_users_need_the_group_and_run_a_demo_of_their_own(host):
    def as_guest(*command):
        user = ("runuser", "-u", "guest", "--", "env", "HOME=/home/guest")
        return host.run(*user, *command, check=False)

    commands = [["status"], ["alerts", "history"], ["status", "--watch"]]
    for command in commands:
        refused = as_guest("costprobe", *command)
        assert refused.returncode == 2, command
        assert "permission denied; use sudo, or join the group costprobe" in refused.stderr
    demo = as_guest("sh", "-c", DEMO).stdout
    assert "demo mode (this user cannot write the store of /etc/costprobe/" in demo
    assert "/home/guest/.local/state/costprobe/costprobe.db" in demo
    host.run("usermod", "--append", "--groups", "costprobe", "guest")
    try:
        for state in ("start", "stop"):
            host.systemctl(state, "costprobe")
            for command in commands[: 1 if state == "stop" else None]:
                # A daemon that has just started on a busy machine may not answer in time: 3, as if stopped.
                codes = {3} if state == "stop" else {0, 3}
                allowed = as_guest("costprobe", *command)
                assert allowed.returncode in codes, allowed.stderr
    finally:
        host.run("gpasswd", "--delete", "guest", "costprobe")
        host.run("rm", "-rf", "/home/guest/.local")


def test_installing_again_with_a_configuration_error_changes_and_restarts_nothing(installed):
    pid = installed.property("MainPID")
    good = installed.read("/etc/costprobe/costprobe.toml")
    installed.configure('[telemetry]\nevery = "never"\n')
    done = installed.service("install", check=False)
    installed.configure(good)
    assert done.returncode == 1
    assert "telemetry.every" in done.stdout + done.stderr
    assert "nothing was changed or restarted; fix the configuration" in done.stderr
    assert installed.property("MainPID") == pid


def test_service_runs_without_capabilities(host):
    pid = host.property("MainPID")
    fields = dict(
        line.split(":\t", 1)
        for line in host.read(f"/proc/{pid}/status").splitlines()
        if ":\t" in line
    )
    assert fields["NoNewPrivs"] == "1"
    assert fields["Seccomp"] == "2"
    assert {int(fields[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {0}
    assert "costprobe" in host.run("ps", "-o", "user:20=", "-p", pid).stdout
    limits = host.read(f"/proc/{pid}/limits")
    (core,) = (line for line in limits.splitlines() if line.startswith("Max core file size"))
    assert core.split()[4:6] == ["0", "0"]
    # The daemon and the sensor child; without probes there is no other.
    assert len(host.run("pgrep", "-u", "costprobe").stdout.split()) == 2


def test_pipes_of_mps_are_bound_into_the_private_tmp_by_the_documented_drop_in(host):
    pages = "".join(
        (ROOT / name).read_text()
        for name in ("docs/troubleshooting.md", "systemd/costprobe.service")
    )
    drop_in = "BindPaths=/tmp/nvidia-mps"
    assert pages.count(drop_in) == 2
    pipes = drop_in.removeprefix("BindPaths=")
    host.run("mkdir", "-p", pipes)
    host.run("touch", f"{pipes}/control", f"{pipes}-of-the-host")
    host.drop_in("mps", f"[Service]\n{drop_in}\n")
    host.systemctl("restart", "costprobe")
    inside = f"/proc/{host.property('MainPID')}/root{pipes}"
    assert host.exists(f"{inside}/control")
    assert not host.exists(f"{inside}-of-the-host")


def test_reload_applies_a_new_file_and_rejects_one_with_an_error(host):
    pid = running_pid(host)
    good = host.read("/etc/costprobe/costprobe.toml")
    host.configure(good + '[host]\nname = "renamed"\n')
    host.systemctl("reload", "costprobe")
    host.wait_for(lambda: status(host)["host"] == "renamed")
    host.configure(good + "[host]\nnam = 1\n")
    assert host.systemctl("reload", "costprobe", check=False).returncode != 0
    assert any("host.nam" in str(entry["MESSAGE"]) for entry in journal(host))
    host.configure(good)
    assert running_pid(host) == pid
    assert status(host)["host"] == "renamed"


def test_killed_or_hung_service_restarts_and_keeps_every_row(host):
    host.drop_in("quick", "[Service]\nWatchdogSec=3s\nTimeoutAbortSec=1s\nRestartSec=100ms\n")
    host.systemctl("restart", "costprobe")
    pid = running_pid(host)
    rows = device_rows(host)
    host.run("kill", "-9", pid)
    host.wait_for(lambda: running_pid(host) not in {None, pid} and is_measuring(host))
    assert rows <= device_rows(host)
    assert host.costprobe("store", "check").returncode == 0
    # Its children were killed, too.
    assert len(host.run("pgrep", "-u", "costprobe").stdout.split()) == 2
    pid = running_pid(host)
    host.run("kill", "-STOP", pid)
    host.wait_for(lambda: running_pid(host) not in {None, pid} and is_measuring(host))
    output = host.run("journalctl", "-u", "costprobe", "--no-pager").stdout
    assert "Watchdog timeout" in output


def test_service_stops_within_five_seconds(host):
    host.drop_in("strict", "[Service]\nTimeoutStopSec=5s\n")
    host.systemctl("stop", "costprobe")
    # systemd would have reported a kill as a timeout.
    assert host.property("Result") == "success"
    assert host.property("ExecMainStatus") == "0"
    assert host.run("pgrep", "-u", "costprobe", check=False).stdout == ""


def test_log_entries_have_levels_and_fields_and_one_time(host):
    host.configure(host.read("/etc/costprobe/costprobe.toml") + "[host]\nnam = 1\n")
    host.run("systemctl", "kill", "--signal=HUP", "--kill-whom=main", "costprobe")
    host.wait_for(lambda: journal(host, "COSTPROBE_PART=daemon.main", "PRIORITY=3"))
    entry = journal(host, "COSTPROBE_PART=daemon.main", "PRIORITY=3")[-1]
    assert "not reloaded" in entry["MESSAGE"]
    assert entry["SYSLOG_IDENTIFIER"] == "costprobe"
    assert entry["CODE_FILE"].endswith("costprobe/daemon/main.py")
    messages = [entry["MESSAGE"] for entry in journal(host, "_COMM=costprobe")]
    assert any(message.startswith("store: ") for message in messages)


def test_credential_of_root_reaches_the_service_and_no_log(host):
    with Scripted(lambda *_: (204, {}, b"")) as server:
        host.write("/etc/costprobe/influxdb.token", "canary-of-a-token")
        host.drop_in(
            "token", "[Service]\nLoadCredential=influxdb-token:/etc/costprobe/influxdb.token\n"
        )
        host.configure(
            host.read("/etc/costprobe/costprobe.toml")
            + f'[[sink]]\napi = "v2"\nurl = "{server.url}"\norg = "o"\nbucket = "b"\n'
            'token = "credential:influxdb-token"\nflush_every = "1s"\n'
        )
        host.systemctl("restart", "costprobe")
        host.wait_for(lambda: server.requests)
        host.wait_for(lambda: status(host)["sinks"]["influxdb"]["sent_points"])
        (_, _, headers, _), *_ = server.requests
        assert headers["Authorization"] == "Token canary-of-a-token"
        assert "canary" not in host.run("journalctl", "--no-pager").stdout
        host.systemctl("stop", "costprobe")


def is_served(port):
    """Whether the loopback interface, which the host shares with the tests, has our page on a port."""
    try:
        status, _, page = answered(f"http://127.0.0.1:{port}/")
    except OSError:
        return False
    return status == 200 and b"costprobe" in page


def test_dashboard_runs_in_its_own_unit_with_a_read_only_file_system(host):
    host.systemctl("start", "costprobe-dashboard")
    try:
        host.wait_for(lambda: is_served(9470))
        mounts = host.read(f"/proc/{host.property('MainPID', 'costprobe-dashboard')}/mountinfo")
        (store,) = (line for line in mounts.splitlines() if " / / " in line)
        assert store.split()[5].startswith("ro")
    finally:
        host.systemctl("stop", "costprobe-dashboard")
    assert host.property("Result", "costprobe-dashboard") == "success"


WATCHER = """
[fleet]
kind = "prometheus"
url = "http://127.0.0.1:9"
[fleet.watch]
every = "1s"
[store]
path = "/var/lib/costprobe-fleet/fleet.db"
"""


def test_watcher_of_a_fleet_runs_in_its_own_unit_with_its_own_store(host):
    def shown(name):
        return host.property(name, "costprobe-fleet")

    assert shown("UnitFileState") == "disabled"
    host.write("/etc/costprobe/fleet.toml", WATCHER)
    host.run("chgrp", "costprobe", "/etc/costprobe/fleet.toml")
    host.run("chmod", "0640", "/etc/costprobe/fleet.toml")
    try:
        host.systemctl("start", "costprobe-fleet")
        # The database does not answer, which is no reason to stop.
        host.wait_for(lambda: "no complete answer: silent hosts" in shown("StatusText"))
        assert (shown("ActiveState"), shown("NRestarts")) == ("active", "0")
        modes = "stat -c '%a %U' /var/lib/costprobe-fleet /var/lib/costprobe-fleet/fleet.db"
        assert host.run("sh", "-c", modes).stdout.splitlines() == ["750 costprobe", "640 costprobe"]
        command = ("costprobe", "--config=/etc/costprobe/fleet.toml", "alerts", "--json")
        alerts = json.loads(host.run(*command).stdout)
        assert alerts["source"] == "daemon"
        assert [alert["name"] for alert in alerts["alerts"]] == ["failing"]
        pid = shown("MainPID")
        host.systemctl("reload", "costprobe-fleet")
        host.wait_for(lambda: shown("ActiveState") != "reloading")
        assert (shown("ActiveState"), shown("MainPID")) == ("active", pid)
        host.write("/etc/costprobe/fleet.toml", WATCHER + "pth = 1\n")
        assert host.systemctl("reload", "costprobe-fleet", check=False).returncode != 0
        assert (shown("ActiveState"), shown("MainPID")) == ("active", pid)
    finally:
        host.systemctl("stop", "costprobe-fleet")
        host.run("rm", "-rf", "/etc/costprobe/fleet.toml", "/var/lib/costprobe-fleet")
    assert shown("Result") == "success"


def test_upgrade_and_uninstallation_keep_data_and_purge_deletes_all(installed):
    """conftest.py runs this test last, because it removes the service."""
    host = installed
    config = host.read("/etc/costprobe/costprobe.toml")
    host.drop_in("own", "[Service]\nEnvironment=OWN=1\n")
    rows = device_rows(host)
    assert version(host) == VERSION

    host.pip_install("--no-deps", f"costprobe=={NEXT_VERSION}")
    # What status reports of a wheel that was upgraded under a running daemon.
    shown = host.service("--config=/etc/costprobe/costprobe.toml", "status").stdout
    assert f"the daemon is {VERSION}, this command is {NEXT_VERSION}: restart" in shown
    # An upgrade that fails changes nothing.
    pid = host.property("MainPID")
    failed = host.service("install", check=False, env=("COSTPROBE_TORCH=torch==0.0.1",))
    assert failed.returncode == 1
    assert host.costprobe("--version").stdout.split()[-1] == VERSION
    assert (host.property("MainPID"), version(host)) == (pid, VERSION)
    host.service("install")
    host.wait_for(lambda: version(host) == NEXT_VERSION)
    assert host.read("/etc/costprobe/costprobe.toml") == config
    assert "OWN=1" in host.property("Environment")
    assert rows <= device_rows(host)

    output = host.service("uninstall").stdout
    for path in ("/etc/costprobe", "/var/lib/costprobe", DROP_INS):
        assert f"{path}: kept" in output
        assert host.exists(path)
    for path in ("/opt/costprobe", "/usr/local/bin/costprobe", "/var/cache/costprobe"):
        assert not host.exists(path)
    assert host.systemctl("status", "costprobe", check=False).returncode == 4
    assert host.run("pgrep", "-u", "costprobe", check=False).stdout == ""
    as_service = ("runuser", "-u", "costprobe", "--", "/opt/first/bin/costprobe")
    host.run(*as_service, "--config=/etc/costprobe/costprobe.toml", "store", "check")

    host.service("uninstall", "--purge")
    assert host.paths_now() == host.paths_before
    assert host.run("id", "costprobe", check=False).returncode != 0
    assert "uninstalled" in host.service("uninstall").stdout
