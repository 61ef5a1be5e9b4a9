"""Print where an interpreter finds modules, without importing them, and which torch and devices it has.

Its text is run with `-c`, in an interpreter that may lack costprobe: `python -c TEXT FILE [FOLDER:MODULE...]`. FILE
is `cuda_driver.py`, or empty to print the modules only; FOLDER is searched first, and may be empty. The first line
is a list with the places of each module, none of one that is not found; the second is torch. Both are JSON.
"""

from __future__ import annotations

import sys

# -c puts the working folder in front of the path; it may belong to another user.
if sys.path[0] == "":
    del sys.path[0]

import importlib.util
import json
import runpy
from importlib.machinery import PathFinder


def places(module: str, folder: str) -> list[str | None]:
    """Return the files and folders of a module and its packages."""
    first, *names = module.split(".")
    spec = PathFinder.find_spec(first, [folder]) if folder else None
    spec = spec or importlib.util.find_spec(first)
    found: list[str | None] = []
    while spec is not None:
        inside = list(spec.submodule_search_locations or ())
        found += [spec.origin, *inside]
        if not names:
            return found
        first = f"{first}.{names.pop(0)}"
        spec = PathFinder.find_spec(first, inside)
    return []


modules = [argument.rpartition(":") for argument in sys.argv[2:]]
sys.stdout.write(json.dumps([places(module, folder) for folder, _, module in modules]) + "\n")
sys.stdout.flush()
if not sys.argv[1]:
    sys.exit()

import torch  # noqa: E402 - without it the places are printed nevertheless

has_cuda = torch.cuda.is_available()
names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count() if has_cuda else 0)]
problem = ""
if torch.version.cuda and not has_cuda:
    driver = runpy.run_path(sys.argv[1])
    problem = driver["driver_problem"](driver["driver_code"]())
facts = {"torch": torch.__version__, "cuda": has_cuda, "names": names, "problem": problem}
facts["hip"] = torch.version.hip
sys.stdout.write(json.dumps(facts) + "\n")
