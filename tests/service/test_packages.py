"""The Debian and RPM packages: they contain what `costprobe install` installs, at a package's places."""

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from costprobe import __version__
from costprobe.ui.cli.support.service_files import (
    FILES,
    LINK,
    PACKAGED,
    SERVICE,
    VENV,
)
from fakes.command import called
from fakes.programs import require, skip_unless

ROOT = Path(__file__).parents[2]
WHEEL = f"costprobe-{__version__}-py3-none-any.whl"
PRESENT = {
    "./usr/share/man/man1/costprobe.1.gz",
    "./usr/share/bash-completion/completions/costprobe",
    "./usr/share/zsh/vendor-completions/_costprobe",
    "./usr/share/fish/vendor_completions.d/costprobe.fish",
    "./usr/share/doc/costprobe/copyright",
    "./usr/share/doc/costprobe/changelog.Debian.gz",
    "./usr/share/costprobe/costprobe.toml.example",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of all four packages."""
    require("dpkg-deb", "gzip")
    skip_unless((Path(sys.prefix) / "bin/nfpm").exists(), "nfpm is not installed")
    folder = tmp_path_factory.mktemp("packages")
    # Without an identity of git: the packages' author is that of the last commit.
    none = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    env = {**os.environ, **none, "SOURCE_DATE_EPOCH": "1790000000"}
    env.pop("MAINTAINER", None)
    command = (ROOT / "scripts/packages", sys.prefix, folder)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def part(package, option):
    """The control files or the contents of a Debian package."""
    data = subprocess.run(("dpkg-deb", option, package), capture_output=True, check=True).stdout
    return tarfile.open(fileobj=io.BytesIO(data))


def test_four_packages_are_built(built):
    expected = {
        WHEEL: b"PK",
        f"costprobe-{__version__}.tar.gz": b"\x1f\x8b",
        f"costprobe_{__version__}-1_all.deb": b"!<arch>",
        f"costprobe-{__version__}-1.noarch.rpm": b"\xed\xab\xee\xdb",
    }
    assert {path.name for path in built.iterdir()} == set(expected)
    for name, magic in expected.items():
        assert (built / name).read_bytes().startswith(magic), name


def test_debian_package_has_the_files_of_the_service(built):
    package = next(built.glob("*.deb"))
    with part(package, "--fsys-tarfile") as files:
        names = {entry.name for entry in files if not entry.isdir()}

        def content(path):
            return files.extractfile(f"./{path}").read()

        places = {name: path.replace("usr/local/lib", "usr/lib") for name, path in FILES.items()}
        assert places[SERVICE] == PACKAGED
        for name, path in places.items():
            assert content(path) == (ROOT / "systemd" / name).read_bytes(), path
        link = files.getmember(f"./{LINK.replace('/local', '')}")
        assert (link.type, link.linkname) == (tarfile.SYMTYPE, f"/{VENV}/bin/costprobe")
        assert content(f"usr/share/costprobe/{WHEEL}") == (built / WHEEL).read_bytes()
        assert (
            gzip.decompress(content("usr/share/man/man1/costprobe.1.gz"))
            == (ROOT / "man/costprobe.1").read_bytes()
        )
        set_up = content("usr/lib/costprobe/set-up").decode()
    assert names >= PRESENT
    assert not [name for name in names if name.startswith(("./opt", "./etc", "./usr/local"))]
    assert WHEEL in set_up
    cpu_build = [line for line in (ROOT / "scripts/setup").read_text().splitlines()
                 if line.startswith("cpu_build=")]  # fmt: skip
    assert cpu_build[0].partition("=")[2] in set_up
    assert "@" not in set_up.replace('"$@"', "")
    with zipfile.ZipFile(built / WHEEL) as wheel:
        assert any(name.endswith("share/costprobe/requirements.txt") for name in wheel.namelist())


def test_scripts_of_the_packages_parse_and_refuse_another_installation(built):
    package = next(built.glob("*.deb"))
    with part(package, "--ctrl-tarfile") as control:
        fields = control.extractfile("./control").read().decode()
        scripts = {
            name: control.extractfile(f"./{name}").read()
            for name in ("preinst", "postinst", "prerm", "postrm")
        }
        assert b"/usr/bin/python3" in control.extractfile("./triggers").read()
    assert "Depends: python3 (>= 3.11), python3-venv (>= 3.11), systemd" in fields
    for path in (ROOT / "packaging/rpm").iterdir():
        scripts[f"rpm/{path.name}"] = path.read_bytes()
    scripts["set-up"] = (ROOT / "packaging/set-up").read_bytes()
    for name, script in scripts.items():
        done = subprocess.run(("sh", "-n"), input=script, capture_output=True, check=False)
        assert done.returncode == 0, (name, done.stderr)
    unit = f"/{FILES[SERVICE]}".encode()
    assert unit in scripts["preinst"]
    assert unit in scripts["rpm/pre"]


def digest(content):
    return hashlib.sha256(content).hexdigest()


def rpm_has(package, form):
    """What the header of an RPM contains."""
    command = ("rpm", "-qp", "--queryformat", form, package)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_rpm_has_the_files_of_the_debian_package(built):
    require("rpm")
    places = {
        "/usr/share/zsh/vendor-completions/": "/usr/share/zsh/site-functions/",
        "/usr/share/doc/costprobe/copyright": "",
        "/usr/share/doc/costprobe/changelog.Debian.gz": "",
    }
    license_file = (ROOT / "LICENSE").read_bytes()
    expected = {"/usr/share/licenses/costprobe/LICENSE": (0o644, digest(license_file))}
    with part(next(built.glob("*.deb")), "--fsys-tarfile") as tar:
        for entry in tar:
            name = entry.name.removeprefix(".")
            for debian, other in places.items():
                name = name.replace(debian, other)
            if entry.issym():
                expected[name] = (None, entry.linkname)
            elif name and not entry.isdir():
                expected[name] = (entry.mode, digest(tar.extractfile(entry).read()))
    package = next(built.glob("*.rpm"))
    form = r"[%{FILENAMES}\t%{FILEMODES}\t%{FILELINKTOS}%{FILEDIGESTS}\t%{FILEUSERNAME}\n]"
    found, folders = {}, set()
    for line in rpm_has(package, form).splitlines():
        name, mode, content, owner = line.split("\t")
        assert owner == "root", name
        if content:
            found[name] = (None if content.startswith("/") else int(mode) & 0o7777, content)
        else:
            folders.add(name)
    assert found == expected
    # rpm leaves others behind when it removes the package.
    assert folders == {str(Path(name).parent) for name in found if "/costprobe/" in name}
    for tag, script in {
        "PREIN": "pre",
        "POSTIN": "post",
        "PREUN": "preun",
        "POSTUN": "postun",
    }.items():
        assert rpm_has(package, f"%{{{tag}}}") == (ROOT / "packaging/rpm" / script).read_text()
    required = rpm_has(package, "[%{REQUIRENAME} %{REQUIREVERSION}\n]").splitlines()
    assert {"python3 3.11", "systemd "} <= set(required)
    checked = subprocess.run(("rpm", "-K", package), capture_output=True, text=True, check=True)
    assert checked.stdout.endswith("digests OK\n")


def test_installation_of_a_package_is_not_changed_by_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    unit = tmp_path / PACKAGED
    unit.parent.mkdir(parents=True)
    unit.touch()
    for name in ("install", "uninstall"):
        done = called("", name, "--root", tmp_path, code=2)
        assert f"{unit}: the service was installed by a package of the system" in done.output
