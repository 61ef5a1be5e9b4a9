"""The Debian package on a bare Debian 12: installed, upgraded, removed and purged by apt."""

import json
import os
import shutil
import subprocess

import pytest
from fakes.container import Container
from fakes.programs import require
from fakes.wheels import NEXT_VERSION, ROOT, TORCH, VERSION, dependency_wheels, own_packages

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]
PIP = "[global]\nno-index = true\nno-compile = true\n"
CONFIG = "/etc/costprobe/costprobe.toml"
# What the test writes, and the user leaves.
OWN = ("/etc/pip.conf", "/etc/default/costprobe")


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A folder with the packages of two versions."""
    folder = tmp_path_factory.mktemp("packages") / "built"
    own_packages(folder)
    return folder


@pytest.fixture
def bare(debian, packages, tmp_path):
    """A booted Debian without costprobe and, for pip, without a network."""
    binds = {"/srv/wheels": dependency_wheels(), "/srv/packages": packages}
    with Container(debian, binds, tmp_path / "console") as container:
        container.write("/etc/pip.conf", PIP)
        yield container


def apt(host, *arguments, check=True):
    command = ("apt-get", "--quiet", "--yes", *arguments)
    return host.run(*command, check=check, env=("DEBIAN_FRONTEND=noninteractive",))


def package(version):
    return f"/srv/packages/costprobe_{version}-1_all.deb"


def paths(host):
    places = ("/etc", "/usr", "/opt", "/var", "/lib/systemd", "-xdev", "-not", "-type", "d")
    return host.paths(*places, without=OWN)


def version_of_service(host):
    """The version of the running service; None while it is not ready."""
    if host.run("systemctl", "is-active", "costprobe", check=False).stdout.strip() != "active":
        return None
    status = json.loads(host.run("costprobe", "status", "--json").stdout)
    return status["version"] if status["running"] else None


def test_package_is_installed_upgraded_removed_and_purged(bare):
    before = paths(bare)
    # Large downloads do not fit into it.
    bare.run("mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", "/tmp")  # noqa: S108
    # Without any wheel pip fails, and the package stays unconfigured until that is fixed.
    failed = apt(bare, "install", package(VERSION), check=False)
    assert failed.returncode == 100
    assert "/etc/pip.conf; then, as\n  root: dpkg --configure costprobe" in failed.stdout
    bare.write("/etc/pip.conf", PIP + "find-links = /srv/wheels\n")
    configured = bare.run("dpkg", "--configure", "costprobe")
    # The wheels have no CPU build of PyTorch of its own index.
    assert "only probes that load a model need it" in configured.stderr
    assert "dependency resolver" not in configured.stderr
    bare.wait_for(lambda: version_of_service(bare) == VERSION)
    assert bare.run("systemctl", "is-enabled", "costprobe").stdout.strip() == "enabled"
    modes = bare.run("stat", "-c", "%a %U %G", CONFIG, "/var/lib/costprobe").stdout.splitlines()
    assert modes == ["640 root costprobe", "750 costprobe costprobe"]
    for path in ("/usr/share/man/man1/costprobe.1.gz", "/usr/bin/costprobe",
                 "/usr/share/bash-completion/completions/costprobe"):  # fmt: skip
        assert bare.exists(path), path
    refused = bare.run("costprobe", "install", check=False)
    assert refused.returncode == 2, refused
    assert "installed by a package of the system" in refused.stderr

    bare.write("/etc/default/costprobe", f"COSTPROBE_TORCH={TORCH}\n")
    bare.run("sh", "-c", f"echo '# mine' >>{CONFIG}")
    # An upgrade that fails after the new version of costprobe, at one of its packages.
    bare.run("sh", "-c", "rm -r /opt/costprobe/lib/python3.11/site-packages/plotext*")
    bare.write("/etc/pip.conf", PIP)
    pid = bare.run("systemctl", "show", "-P", "MainPID", "costprobe").stdout
    failed = apt(bare, "install", package(NEXT_VERSION), check=False)
    assert failed.returncode == 100
    assert "the previous version stays in use, unchanged" in failed.stdout + failed.stderr
    assert bare.run("costprobe", "--version").stdout.split()[-1] == VERSION
    assert bare.run("systemctl", "show", "-P", "MainPID", "costprobe").stdout == pid
    assert version_of_service(bare) == VERSION
    bare.write("/etc/pip.conf", PIP + "find-links = /srv/wheels\n")
    bare.run("dpkg", "--configure", "costprobe")
    bare.wait_for(lambda: version_of_service(bare) == NEXT_VERSION)
    assert bare.read(CONFIG).endswith("# mine\n")
    assert TORCH.split("==")[0] in bare.run("/opt/costprobe/bin/pip", "list").stdout

    bare.run("rm", "-rf", "/opt/costprobe/lib")  # as after an upgrade of Python
    bare.run("dpkg-trigger", "--by-package=dpkg", "/usr/bin/python3")
    bare.run("dpkg", "--triggers-only", "costprobe")
    bare.wait_for(lambda: version_of_service(bare) == NEXT_VERSION)

    store = "/var/lib/costprobe/costprobe.db"
    apt(bare, "remove", "costprobe")
    assert bare.run("systemctl", "is-active", "costprobe", check=False).returncode != 0
    left = {path for path in paths(bare) - before if "/costprobe.service" not in path}
    assert left == {
        path for path in left if path == CONFIG or path.startswith("/var/lib/costprobe/")
    }
    assert {CONFIG, store} <= left
    apt(bare, "install", package(NEXT_VERSION))
    bare.wait_for(lambda: version_of_service(bare) == NEXT_VERSION)
    assert bare.read(CONFIG).endswith("# mine\n")

    apt(bare, "purge", "costprobe")
    assert paths(bare) - before == set()
    assert bare.run("systemctl", "--failed", "--no-legend").stdout.strip() == ""


@pytest.mark.skipif(shutil.which("buildah") is None, reason="apt-get install buildah crun")
def test_image_is_built_and_runs_as_its_user(debian, packages, tmp_path, request):
    """By the Containerfile, on a Debian of its own packages alone."""
    env = {**os.environ, "STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}
    storage = tmp_path / "storage"  # of more than a gigabyte
    request.addfinalizer(lambda: shutil.rmtree(storage))
    program = ("buildah", "--root", storage / "root", "--runroot", storage / "runroot")

    def buildah(*command):
        done = subprocess.run(
            [*program, *command], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout.strip()

    storage.mkdir()
    archive = storage / "debian.tar"
    subprocess.run(["tar", "-C", debian, "--one-file-system", "-cf", archive, "."], check=True)
    base = buildah("from", "scratch")
    buildah("add", "--quiet", base, archive, "/")
    buildah("commit", "--quiet", "--rm", base, "localhost/debian")
    (tmp_path / "dist").mkdir()
    shutil.copy(packages / f"costprobe-{VERSION}-py3-none-any.whl", tmp_path / "dist")
    (tmp_path / "pip.conf").write_text(f"{PIP}find-links = /srv/wheels\n")
    buildah(
        "bud", "--layers=false", "--network=host", "--tag=localhost/costprobe",
        f"--volume={dependency_wheels()}:/srv/wheels:ro",
        f"--volume={tmp_path / 'pip.conf'}:/etc/pip.conf:ro",
        "--build-arg=BASE=localhost/debian",
        f"--file={ROOT / 'docs/howto/Containerfile'}", tmp_path / "dist",
    )  # fmt: skip
    made = buildah("from", "localhost/costprobe")
    shown = buildah(
        "run", made, "--", "sh", "-c",
        "cd; costprobe --version; id -u; HOME=/tmp timeout --signal=INT 20 costprobe run 2>&1 || true",
    )  # fmt: skip
    assert VERSION in shown
    assert "\n10001\n" in shown
    assert "demo mode (no configuration file)" in shown
    assert "stopped; the measurements stay in" in shown


def test_lintian_finds_no_error(packages):
    require("lintian")
    file = packages / package(VERSION).split("/")[-1]
    command = ("lintian", "--allow-root", "--fail-on=error", file)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
