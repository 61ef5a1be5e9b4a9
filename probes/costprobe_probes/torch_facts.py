"""Print where an interpreter finds modules, without importing them, and which torch and devices it has.

Its text is run with `-c`, in an interpreter that may lack costprobe: `python -c TEXT FILE MODULE...`, where FILE is
`cuda_driver.py`. The first line is the places by module, the second torch; both are JSON.
"""

import sys

# -c puts the working folder in front of the path; it may belong to another user.
if sys.path[0] == "":
    del sys.path[0]

import importlib.util
import json
import runpy

specs = {name: importlib.util.find_spec(name) for name in sys.argv[2:]}
places = {
    name: [spec.origin, *(spec.submodule_search_locations or ())]
    for name, spec in specs.items()
    if spec
}
sys.stdout.write(json.dumps(places) + "\n")
sys.stdout.flush()

import torch  # noqa: E402 - without it the places are printed nevertheless

has_cuda = torch.cuda.is_available()
names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count() if has_cuda else 0)]
problem = ""
if torch.version.cuda and not has_cuda:
    driver = runpy.run_path(sys.argv[1])
    problem = driver["driver_problem"](driver["driver_code"]())
facts = {"torch": torch.__version__, "cuda": has_cuda, "names": names, "problem": problem}
sys.stdout.write(json.dumps(facts) + "\n")
