"""The service comes, is upgraded with its data kept, and goes without a trace."""

import json

import pytest
from fakes.wheels import NEXT_VERSION, VERSION

pytestmark = pytest.mark.timeout(900)

# Kept by the system of what was done, or made by the first command of its kind.
TRACES = (
    "/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/.pwd.lock",
    "/etc/.updated", "/var/log", "/var/lib/systemd", "/var/cache/ldconfig",
    "/opt/first", "/root",
)  # fmt: skip


def everything(host):
    """What lies on the host's disk, by its path."""
    found = host.run(
        "find", "/etc", "/usr/local", "/opt", "/var", "/home", "/root", "-xdev",
        "-not", "-path", "/opt/wheels*",
    ).stdout.splitlines()  # fmt: skip
    return {path for path in found if not path.startswith(TRACES)}


def stored(host, measurement="device"):
    """Rows of the store."""
    return host.infercost(
        "export", "--measurement", measurement, "--since", "1h"
    ).stdout.splitlines()


def version(host):
    return json.loads(host.infercost("status", "--json").stdout)["version"]


def test_it_is_installed_upgraded_and_removed(boot):
    host = boot()
    before = everything(host)

    first = host.service("install").stdout
    assert "an example; put your prices" in first
    assert host.property("ActiveState") == "active"
    assert host.property("User") == "infercost"
    assert host.systemctl("is-enabled", "infercost").stdout.strip() == "enabled"
    modes = "stat -c '%a %U %G' /etc/infercost/infercost.toml /var/lib/infercost /run/infercost"
    assert host.run("sh", "-c", modes).stdout.splitlines() == [
        "640 root infercost",
        "700 infercost infercost",
        "700 infercost infercost",
    ]
    assert host.infercost("config", "check").returncode == 0

    again = host.service("install").stdout
    assert "infercost.toml: kept" in again
    assert "infercost.service: as it was" in again
    assert host.property("ActiveState") == "active"

    config = '[telemetry]\nevery = "200ms"\naggregate = "1s"\ncpu = true\n[host]\nname = "kept"\n'
    host.configure(config)
    host.systemctl("reload", "infercost")
    host.wait_for(lambda: any("host=kept" in line for line in stored(host)))
    host.drop_in("mine", "[Service]\nEnvironment=MINE=1\n")
    rows = stored(host)
    assert version(host) == VERSION

    host.service("install", "--from", f"infercost=={NEXT_VERSION}")
    host.wait_for(lambda: version(host) == NEXT_VERSION)
    assert host.read("/etc/infercost/infercost.toml") == config
    assert "MINE=1" in host.property("Environment")
    assert set(rows) <= set(stored(host))

    said = host.service("uninstall").stdout
    for path in ("/etc/infercost", "/var/lib/infercost", "/etc/systemd/system/infercost.service.d"):
        assert f"{path}: kept" in said
        assert host.exists(path)
    for path in ("/opt/infercost", "/usr/local/bin/infercost", "/var/cache/infercost"):
        assert not host.exists(path)
    assert host.systemctl("status", "infercost", check=False).returncode == 4
    assert host.run("pgrep", "-u", "infercost", check=False).stdout == ""

    host.service("install")
    host.wait_for(lambda: version(host) == VERSION)
    assert set(rows) <= set(stored(host))

    host.service("uninstall", "--purge")
    assert everything(host) == before
    assert host.run("id", "infercost", check=False).returncode != 0
    assert "uninstalled" in host.service("uninstall").stdout
