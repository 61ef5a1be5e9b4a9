"""A Python environment of a serving stack: with torch and without costprobe.

It is a separate virtual environment, created once for each version of its packages. Torch is
linked, and its requirements are copied; nothing else of this interpreter is included.
"""

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from fakes.made_once import made_once

LIBRARIES = ("timm==1.0.31", "transformers==5.23.0", "safetensors==0.8.0")
IMPORTED = """
import timm, torchvision
from transformers import BertForSequenceClassification, GPT2LMHeadModel
"""
INSTALL_TIMEOUT_S = 500
# torchvision's extension does not load with another build of torch; its image models need only
# the registration of these two operators.
TORCHVISION_OPS = """
import importlib.util
if importlib.util.find_spec("torchvision"):
    import torch
    library = torch.library.Library("torchvision", "DEF")
    try:
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    except RuntimeError:
        pass
"""


def with_model_libraries() -> Path:
    """An interpreter with torch, torchvision, timm, transformers and safetensors."""
    torch = distribution("torch")
    minor = int(re.match(r"2\.(\d+)", torch.version)[1])
    packages = (f"torchvision==0.{minor + 15}.*", *LIBRARIES)
    # An environment cannot be moved: its links are absolute.
    content = (
        sys.version,
        torch.version,
        str(torch.locate_file("")),
        packages,
        TORCHVISION_OPS,
        IMPORTED,
    )
    folder = made_once("python-models", lambda folder: _fill(folder, packages), *content)
    return folder / "bin" / "python"


def _fill(folder: Path, packages: tuple[str, ...]) -> None:
    """Create an environment with torch and packages of the index."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--clear", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for found in _closure("torch"):
        _bring(found, site)
    # pip finds the linked torch and installs no other build.
    python = str(folder / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python]
    install = ["install", "--quiet", "--no-compile", "--disable-pip-version-check", *packages]
    subprocess.run([*pip, *install], check=True, timeout=INSTALL_TIMEOUT_S)
    # No sitecustomize: Debian's Python has one of its own.
    (site / "torchvision_ops.py").write_text(TORCHVISION_OPS)
    (site / "torchvision_ops.pth").write_text("import torchvision_ops\n")
    # Compile what the tests import, a small part of the packages, before a test does.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run([python, "-c", IMPORTED], check=True, env=environment)


def _closure(name: str) -> list[Distribution]:
    """A distribution and its requirements on this platform."""
    found: dict[str, Distribution] = {}
    waiting = [name]
    while waiting:
        wanted = waiting.pop().lower().replace("_", "-")
        if wanted in found:
            continue
        try:
            found[wanted] = distribution(wanted)
        except PackageNotFoundError:
            continue  # an optional requirement, or one of another platform
        required = [text for text in found[wanted].requires or () if "extra ==" not in text]
        waiting += [re.match(r"[\w.-]+", text)[0] for text in required]
    return list(found.values())


def _bring(found: Distribution, site: Path) -> None:
    """Add a distribution to an environment: torch, which is large, by links, others as copies."""
    tops = {
        path.parts[0] for path in found.files or () if path.parts[0] not in ("..", "__pycache__")
    }
    for top in tops:
        source, place = Path(found.locate_file(top)), site / top
        if place.exists() or not source.exists():
            continue
        if found.name == "torch":
            place.symlink_to(source)
        elif source.is_dir():
            shutil.copytree(source, place)
        else:
            shutil.copy(source, place)
