"""The RPM in the root directory of a Debian 12: installed, started, upgraded and removed by rpm."""

import json
import shutil
import subprocess

import pytest
from fakes.container import Container
from fakes.wheels import NEXT_VERSION, VERSION, dependency_wheels, own_packages

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(shutil.which("rpm") is None, reason="rpm is not installed"),
]
CONFIG = "etc/costprobe/costprobe.toml"
ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
PIP = "[global]\nno-index = true\nno-compile = true\nfind-links = /srv/wheels\n"


@pytest.fixture
def root(debian, tmp_path):
    """A Debian with wheels for an installation without a network.

    The database of rpm is empty, so that no requirement is found: `--nodeps`.
    """
    root = tmp_path / "root"
    subprocess.run(("cp", "--archive", debian, root), check=True)
    shutil.copytree(dependency_wheels(), root / "srv/wheels")
    (root / "etc/pip.conf").write_text(PIP)
    # As in Fedora; Debian's packages are enabled when they are installed.
    (root / "usr/lib/systemd/system-preset/99-default.preset").write_text("disable *\n")
    rpm(root, "--initdb")
    return root


def rpm(root, *arguments, check=True):
    """Run rpm, whose scripts run in the root directory and, as on any host, see processes."""
    mounted = 'mount -t proc proc "$1/proc" && exec rpm --root "$@"'
    command = ("unshare", "--mount", "sh", "-c", mounted, "sh", root, *arguments)
    done = subprocess.run(command, env=ENV, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


def in_root(root, *command):
    done = subprocess.run(
        ("chroot", root, *command), env=ENV, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_rpm_is_installed_started_upgraded_and_removed(root, tmp_path):
    own_packages(tmp_path / "built")

    def package(version):
        return tmp_path / f"built/costprobe-{version}-1.noarch.rpm"

    unit = root / "usr/local/lib/systemd/system/costprobe.service"
    unit.parent.mkdir(parents=True)
    unit.touch()
    refused = rpm(root, "--install", "--nodeps", package(VERSION), check=False)
    assert refused.returncode != 0
    assert "was installed by `costprobe install`" in refused.stderr
    assert not (root / "usr/lib/costprobe").exists()
    unit.unlink()

    shown = rpm(root, "--install", "--nodeps", package(VERSION)).stdout
    assert "start the service: systemctl enable --now costprobe" in shown
    assert in_root(root, "stat", "-c", "%a %U %G", f"/{CONFIG}") == "640 root costprobe"
    assert rpm(root, "--verify", "--nodeps", "costprobe").stdout == ""
    assert VERSION in in_root(root, "costprobe", "--version")

    with Container(root, {}, tmp_path / "console") as host:
        host.run("systemctl", "enable", "--now", "costprobe")
        status = json.loads(host.run("costprobe", "status", "--json").stdout)
        assert (status["running"], status["version"]) == (True, VERSION)

    with (root / CONFIG).open("a") as config:
        config.write("# mine\n")
    rpm(root, "--upgrade", "--nodeps", package(NEXT_VERSION))
    assert NEXT_VERSION in in_root(root, "costprobe", "--version")
    assert [path.name for path in (root / "usr/share/costprobe").glob("*.whl")] == [
        f"costprobe-{NEXT_VERSION}-py3-none-any.whl"
    ]

    rpm(root, "--erase", "costprobe")
    gone = ("opt/costprobe", "usr/lib/costprobe", "usr/share/costprobe", "usr/bin/costprobe",
            "usr/share/licenses/costprobe")  # fmt: skip
    assert not [path for path in gone if (root / path).is_symlink() or (root / path).exists()]
    assert (root / CONFIG).read_text().endswith("# mine\n")
