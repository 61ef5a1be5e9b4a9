"""The layers of docs/architecture.md: each test prints every offender at once."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {"costprobe": ROOT / "agent", "costprobe_probes": ROOT / "probes"}
LAYERS = ("core", "domain", "adapters", "app", "daemon", "ui")
TOP_MODULES = {"__init__", "__main__", "client"}
# Packages of a layer that its other packages may import.
SHARED = {"adapters": {"net", "system"}, "ui": set()}
# The kinds of probe; neither module imports torch.
PROBE_TABLES = ("costprobe_probes.served.registry.", "costprobe_probes.sources.registry.")
THIRD_PARTY = {"core": {"pydantic"}, "domain": {"pydantic"}}


@cache
def modules(package):
    """Module name -> path of each file of a package."""
    root = SOURCES[package]
    found = {}
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports_of(path):
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def edges(package):
    """(importing module, imported module), both within the package."""
    names = modules(package)
    for name, path in names.items():
        for imported in imports_of(path):
            for candidate in (imported, imported.rpartition(".")[0]):
                if candidate in names and candidate != name:
                    yield name, candidate
                    break


def layer(name):
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in LAYERS else "ui"


def test_old_name_does_not_occur():
    command = ["git", "grep", "-il", "infer" + "cost", "--", ".", ":!CHANGELOG.md"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    paths = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found += "\n".join(path for path in paths.stdout.split() if "infer" + "cost" in path)
    assert not found


def test_tree_contains_the_layer_folders_only():
    folder = SOURCES["costprobe"] / "costprobe"
    loose = {path.stem for path in folder.glob("*.py")} - TOP_MODULES
    folders = {path.name for path in folder.iterdir() if any(path.glob("*.py"))}
    assert not loose, f"modules beside the layer folders: {loose}"
    assert folders == set(LAYERS)


def test_imports_point_to_the_same_or_a_lower_layer():
    rank = {name: place for place, name in enumerate(LAYERS)}
    offenders = [
        f"{name} imports {other}"
        for name, other in edges("costprobe")
        if other != "costprobe" and rank[layer(other)] > rank[layer(name)]
    ]
    assert not offenders, "\n".join(offenders)


def test_sibling_packages_of_adapters_and_ui_do_not_import_each_other():
    offenders = []
    names = modules("costprobe")
    for name, other in edges("costprobe"):
        for parent, shared in SHARED.items():
            prefix = f"costprobe.{parent}."
            is_composed = name.startswith("costprobe.ui.cli.")  # commands start what they show
            if not (name.startswith(prefix) and other.startswith(prefix)) or is_composed:
                continue
            package = other.removeprefix(prefix).split(".")[0]
            is_package = names[f"{prefix}{package}"].name == "__init__.py"
            own = name.removeprefix(prefix).split(".")[0]
            if is_package and package != own and package not in shared:
                offenders.append(f"{name} imports {other}")
    assert not offenders, "\n".join(sorted(offenders))


def test_no_import_circles_between_files_or_folders():
    """In each package, its files and subpackages form a graph without a circle."""
    offenders = []
    for package in SOURCES:
        graph = {}
        for name, other in edges(package):
            ours, theirs = name.split("."), other.split(".")
            depth = next(
                (n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
                min(len(ours), len(theirs)),
            )
            if depth < min(len(ours), len(theirs)):
                key = ".".join(ours[:depth])
                link = (".".join(ours[: depth + 1]), ".".join(theirs[: depth + 1]))
                graph.setdefault(key, {}).setdefault(link[0], {}).setdefault(link[1], []).append(
                    f"{name} -> {other}"
                )
        for parent, links in graph.items():
            offenders += _circles(parent, links)
    assert not offenders, "\n".join(offenders)


def _circles(parent, links):
    reach = {}

    def reachable(start):
        if start not in reach:
            seen, waiting = set(), [start]
            while waiting:
                for other in links.get(waiting.pop(), {}):
                    if other not in seen:
                        seen.add(other)
                        waiting.append(other)
            reach[start] = seen
        return reach[start]

    for name, others in links.items():
        for other, why in others.items():
            if name in reachable(other):
                yield f"circle in {parent}: {name} -> {other}: {', '.join(why)}"


def test_costprobe_imports_no_torch_of_probes_its_tables_and_nvml_in_the_sensor_child_only():
    offenders = []
    for name, path in modules("costprobe").items():
        allowed = {"pynvml"} if name.startswith("costprobe.adapters.sensors.child.") else set()
        names = {imported for imported in imports_of(path) if not imported.startswith(PROBE_TABLES)}
        roots = {imported.split(".")[0] for imported in names}
        found = (roots & {"torch", "costprobe_probes", "numpy", "pynvml"}) - allowed
        offenders += [f"{name} imports {root}" for root in found]
    assert not offenders, "\n".join(offenders)


def test_lower_layers_and_probes_import_few_third_party_packages():
    offenders = []
    for package in SOURCES:
        for name, path in modules(package).items():
            allowed = {"torch"} if package == "costprobe_probes" else THIRD_PARTY.get(layer(name))
            if allowed is None:
                continue
            roots = {imported.split(".")[0] for imported in imports_of(path)}
            found = roots - set(sys.stdlib_module_names) - allowed - {package}
            offenders += [f"{name} imports {root}" for root in found]
    assert not offenders, "\n".join(offenders)


def test_class_names_occur_once():
    places = {}
    for folder in ("agent", "bench", "probes", "scripts"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name, []).append(
                        f"{path.relative_to(ROOT)}:{node.lineno}"
                    )
    offenders = [f"{name}: {', '.join(found)}" for name, found in places.items() if len(found) > 1]
    assert not offenders, "\n".join(offenders)
