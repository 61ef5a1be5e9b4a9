"""Wheels for an installation without a network: costprobe in two versions, and its dependencies.

Packages that the service's tests never use are replaced by empty ones of their name: torch, and
some of many files.
"""

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from fakes.container import debian_root, in_debian
from fakes.made_once import made_once

ROOT = Path(__file__).parents[2]
VERSION = distribution("costprobe").version
NEXT_VERSION = f"{VERSION}.post1"
SHIPPED = ("agent", "probes", "systemd", "man", "pyproject.toml", "README.md", "LICENSE")
PYTHON = "3.11"  # of Debian 12
TORCH = "torch==2.13.0"
EMPTY = ("torch", "apprise", "pygments", "tzdata")


def dependency_wheels():
    """A folder with the wheels of everything that costprobe requires."""
    required = _required()
    return made_once("wheels", lambda folder: _download(folder, required), required)


def own_wheels(folder):
    """Fill a folder with the wheels of costprobe."""
    folder.mkdir()
    for version in (VERSION, NEXT_VERSION):
        _costprobe(folder, version)


def own_packages(folder):
    """Fill a folder with the Debian packages of both versions, whose locks name the wheels."""
    folder.mkdir()
    env = {
        **os.environ,
        "MAINTAINER": "Tester <tester@lists.debian.org>",
        "SOURCE_DATE_EPOCH": "1790000000",
    }
    for version in (VERSION, NEXT_VERSION):
        source = _source(folder.parent / f"package-{version}", version)
        for name in ("packaging", "scripts"):
            shutil.copytree(ROOT / name, source / name)
        command = (source / "scripts/packages", sys.prefix, folder)
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]


def user_environment():
    """A virtual environment at /opt/first of a Debian, with what costprobe requires."""
    root, wheels = debian_root(), dependency_wheels()
    return made_once("user", lambda folder: _install(folder, root, wheels), str(root), str(wheels))


def _install(folder, root, wheels):
    folder.mkdir()
    in_debian(
        root,
        {"/opt/first": folder, "/opt/wheels": wheels},
        "python3 -m venv /opt/first",
        "/opt/first/bin/pip install --quiet --no-index --no-deps /opt/wheels/*.whl",
    )


def _download(folder, required):
    folder.mkdir()
    for name, version in required:
        if name in EMPTY:
            _stand_in(folder, name, version)
    wanted = [f"{name}=={version}" for name, version in required if name not in EMPTY]
    _pip("download", "--no-deps", "--only-binary=:all:", f"--python-version={PYTHON}", "--dest",
         folder, *wanted)  # fmt: skip


def _costprobe(folder, version):
    source = _source(folder.parent / f"source-{version}", version)
    _python("hatchling", "build", "-t", "wheel", "-d", folder, cwd=source)


def _source(source, version):
    """Copy what is shipped, as another version and with a lock of the wheels; return its folder."""
    source.mkdir()
    for name in SHIPPED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name)
        else:
            shutil.copy(ROOT / name, source / name)
    (source / "requirements").mkdir()
    (source / "requirements/run.txt").write_text(_lock(dependency_wheels()))
    for name in ("pyproject.toml", "agent/costprobe/__init__.py"):
        text = (source / name).read_text()
        assert f'"{VERSION}"' in text
        (source / name).write_text(text.replace(f'"{VERSION}"', f'"{version}"', 1))
    return source


def _required():
    """The dependencies of costprobe on this platform, without those of the empty packages."""
    found, waiting = dict([TORCH.split("==")]), ["costprobe", "starlette", "uvicorn"]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            dist = distribution(name)
        except PackageNotFoundError:
            continue  # of another platform
        found[name] = dist.version
        if name in EMPTY:
            continue
        required = [text for text in dist.requires or () if "extra ==" not in text]
        waiting += [re.match(r"[\w.-]+", text)[0] for text in required]
    del found["costprobe"]
    return sorted(found.items())


def _stand_in(folder, name, version):
    """Write a wheel without content."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": f'__version__ = "{version}"\n',
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    record = []
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
            record.append(f"{path},sha256={digest.decode().rstrip('=')},{len(text)}")
            wheel.writestr(path, text)
        record.append(f"{info}/RECORD,,\n")
        wheel.writestr(f"{info}/RECORD", "\n".join(record))


def _pip(*arguments):
    _python("pip", "--disable-pip-version-check", *arguments)


def _lock(wheels):
    """A lock with the hashes of these wheels, some of which are made here."""
    lines = []
    for wheel in sorted(wheels.glob("*.whl")):
        name, version, *_ = wheel.name.split("-")
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        lines += [f"{name}=={version} --hash=sha256:{digest}\n"] if name != "torch" else []
    return "".join(lines)


def _python(module, *arguments, cwd=None):
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, timeout=400
    )
    assert done.returncode == 0, done.stderr[-2000:]
