"""Wheels for an installation without a network: costprobe in two versions, and its dependencies.

torch is replaced by an empty package of its name, because it does not matter how the service is
installed and run.
"""

import base64
import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSION = distribution("costprobe").version
NEXT_VERSION = f"{VERSION}.post1"
SHIPPED = ("agent", "probes", "systemd", "man", "pyproject.toml", "README.md", "LICENSE")
PYTHON = "3.11"  # of Debian 12
TORCH = "torch==2.13.0"


def make_wheels(folder):
    """Fill a folder with wheels."""
    folder.mkdir()
    for version in (VERSION, NEXT_VERSION):
        _costprobe(folder, version)
    _stand_in(folder, *TORCH.split("=="))
    wanted = [f"{name}=={version}" for name, version in _required()]
    _pip("download", "--no-deps", "--only-binary=:all:", f"--python-version={PYTHON}", "--dest",
         folder, *wanted)  # fmt: skip


def _costprobe(folder, version):
    source = folder.parent / f"source-{version}"
    for name in SHIPPED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name)
        else:
            source.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    for name in ("pyproject.toml", "agent/costprobe/__init__.py"):
        text = (source / name).read_text()
        assert f'"{VERSION}"' in text
        (source / name).write_text(text.replace(f'"{VERSION}"', f'"{version}"', 1))
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source)


def _required():
    """The dependencies of costprobe on this platform, without torch and its own dependencies."""
    found, waiting = {}, ["costprobe", "starlette", "uvicorn"]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found or name == "torch":
            continue
        try:
            dist = distribution(name)
        except PackageNotFoundError:
            continue  # of another platform
        found[name] = dist.version
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
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stderr[-2000:]
