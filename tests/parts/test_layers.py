"""The layers of the design hold: a file imports from its own layer or from one below it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# The first entry that a module's name starts with says its layer.
LAYERS = (
    ("agent.__main__", 5),
    ("agent.cli", 5),
    ("agent.grafana", 5),
    ("agent.influx_setup", 5),
    ("agent.dashboard", 5),
    ("agent.report", 5),
    ("agent.client", 5),
    ("agent.budgeting", 4),
    ("agent.daemon", 4),
    ("agent.telemetry", 3),
    ("agent.probing", 3),
    ("agent.storage", 3),
    ("agent.sinks", 3),
    ("agent.feeds", 3),
    ("agent.serving", 3),
    ("agent.alerting", 3),
    ("agent.notifying", 3),
    ("agent.pricing", 2),
    ("agent.costing", 2),
    ("agent.detection", 2),
    ("agent.advising", 2),
    ("agent.alert", 1),
    ("agent.model", 1),
    ("agent.series", 1),
    ("agent.lineprotocol", 1),
    ("agent.units", 1),
    ("agent.weekly", 1),
    ("agent.config", 1),
    ("agent.calendar_step", 1),
    ("agent.clock", 1),
    ("agent.control_wire", 1),
    ("agent.retry_after", 1),
    ("agent.secret_file", 1),
    ("agent", 0),
)
PARTS = 3
FILES = sorted((ROOT / "agent").rglob("*.py"))
# What each layer may take from beyond the standard library; parts and above take what they need.
THIRD_PARTY = {0: set(), 1: {"pydantic"}, 2: set()}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> tuple[str, int]:
    for prefix, layer in LAYERS:
        if module == prefix or module.startswith((prefix + ".", prefix + "_")):
            return prefix, layer
    raise AssertionError(f"{module} belongs to no layer: add it to LAYERS")


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where a name comes from"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_a_file_imports_from_its_own_layer_or_below(path):
    prefix, layer = layer_of(module_name(path))
    for imported in imports_of(path):
        if not imported.startswith("agent."):
            continue
        other_prefix, other = layer_of(imported)
        assert other <= layer, f"{module_name(path)} (layer {layer}) imports {imported} ({other})"
        if layer == other == PARTS:
            assert other_prefix == prefix, f"{module_name(path)} imports another part: {imported}"


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_the_daemons_code_never_imports_torch_or_nvml(path):
    allowed = {"pynvml"} if "telemetry" in path.parts else set()
    roots = {name.split(".")[0] for name in imports_of(path)}
    assert not (roots & {"torch", "probes", "numpy", "pynvml"}) - allowed


@pytest.mark.parametrize("path", sorted((ROOT / "probes").rglob("*.py")), ids=module_name)
def test_probes_depend_on_torch_and_the_standard_library_alone(path):
    import sys

    roots = {name.split(".")[0] for name in imports_of(path)}
    assert roots <= set(sys.stdlib_module_names) | {"torch", "probes"}


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_the_lower_layers_take_little_from_others(path):
    import sys

    _, layer = layer_of(module_name(path))
    roots = {name.split(".")[0] for name in imports_of(path)} - {"agent"}
    third_party = roots - set(sys.stdlib_module_names)
    assert third_party <= THIRD_PARTY.get(layer, third_party)


def test_no_import_circles_between_files():
    graph = {}
    names = {module_name(path): path for path in FILES}
    for name, path in names.items():
        graph[name] = set()
        for imported in imports_of(path):
            for candidate in (imported, imported.rpartition(".")[0]):
                if candidate in names and candidate != name:
                    graph[name].add(candidate)
                    break
    done, path_now = set(), []

    def visit(name):
        if name in done:
            return
        assert name not in path_now, f"circle: {' -> '.join([*path_now, name])}"
        path_now.append(name)
        for other in graph[name]:
            visit(other)
        path_now.pop()
        done.add(name)

    for name in graph:
        visit(name)
