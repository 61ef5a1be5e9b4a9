"""The rules of docs/architecture.md about rooms: each prints every offender at once.

Imports under TYPE_CHECKING count like all others.
"""

import ast
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {"costprobe": ROOT / "agent", "costprobe_probes": ROOT / "probes"}
TABLES = tomllib.loads(Path(__file__).with_name("rooms.toml").read_text())
ROOMS = {room: set(others) for room, others in TABLES["rooms"].items()}
# Every room's sections in one file, the process, and what people see: each may import all before it.
ABOVE = ("configuration", "daemon", "ui")
TOP_FILES = {"__init__", "__main__", "client", "configuration"}
# Adapters that serve the other adapters.
SERVING_OTHERS = {"http": {"host"}, "host": set()}
NOT_ARITHMETIC = {"os", "threading", "time", "random"}
CALLS_NOT_ARITHMETIC = ("open", "datetime.now", ".read_text", ".read_bytes")
MAX_CODE_LINES = 600


@cache
def modules(package="costprobe"):
    """Module name -> path of each file of a package."""
    root = SOURCES[package]
    found = {}
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def tree_of(path):
    return ast.parse(path.read_text())


@cache
def imports_of(path):
    found = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def roots_of(path):
    return {imported.split(".")[0] for imported in imports_of(path)}


@cache
def edges():
    """(importing module, imported module) of both packages."""
    names = {**modules("costprobe"), **modules("costprobe_probes")}
    found = []
    for name, path in names.items():
        for imported in sorted(imports_of(path)):
            candidates = (imported, imported.rpartition(".")[0])
            other = next((one for one in candidates if one in names), name)
            found += [(name, other)] if other not in {name, "costprobe"} else []
    return found


def room_of(name):
    """The first folder or file below the package: `drift`, `adapters`, `configuration`."""
    parts = name.split(".")
    return parts[1] if parts[0] == "costprobe" and len(parts) > 1 else parts[0]


def allowed_rooms(room):
    if room == "core":
        return {"core"}
    if room == "adapters":
        return {"core", "adapters"}
    if room in ROOMS:
        return {"core", "adapters", room, *ROOMS[room]}
    if room in ABOVE:
        below = ABOVE[: ABOVE.index(room) + 1]
        return {"core", "adapters", *ROOMS, *below, *({"client"} if room == "ui" else ())}
    return {"client": {"core", "adapters"}, "__main__": {"ui"}}.get(room, {room})


def rooms_import_what_the_table_names():
    for name, other in edges():
        is_room = not other.startswith("costprobe_probes")
        if is_room and room_of(other) not in allowed_rooms(room_of(name)):
            yield f"{name} imports {other}"


def adapters_import_core_http_host_and_their_own_folder():
    for name, other in edges():
        if room_of(name) == room_of(other) == "adapters":
            own, its = name.split(".")[2], other.split(".")[2]
            if its not in {own, *SERVING_OTHERS.get(own, SERVING_OTHERS)}:
                yield f"{name} imports {other}"


def the_outside_world_is_imported_by_adapters():
    for name, path in modules().items():
        is_named = name.removeprefix("costprobe.") in TABLES["outside_too"]
        if room_of(name) != "adapters" and not is_named:
            yield from (
                f"{name} imports {root}" for root in sorted(roots_of(path) & {*TABLES["outside"]})
            )


def drivers_are_imported_in_the_sensor_child_and_torch_in_probes():
    for name, path in modules().items():
        allowed = {"pynvml"} if name.startswith("costprobe.adapters.sensors.child.") else set()
        found = roots_of(path) & {"torch", "numpy", "pynvml"}
        yield from (f"{name} imports {root}" for root in found - allowed)


def files_that_do_things_are_listed_and_all_others_are_arithmetic():
    names = modules()
    listed = {
        f"costprobe.{room}.{file}"
        for room, files in TABLES["doing"].items()
        for file in files.split()
    }
    yield from (f"{name} does not exist" for name in sorted(listed - names.keys()))
    records = tuple(f"{record}." for record in TABLES["records"])
    for name, path in names.items():
        if room_of(name) not in ROOMS or name.count(".") == 1 or name in listed:
            continue
        for imported in sorted(imports_of(path)):
            adapter = imported.removeprefix("costprobe.adapters.")
            is_record = adapter == imported or adapter.startswith(records)
            if imported.split(".")[0] in NOT_ARITHMETIC or not is_record:
                yield f"{name} imports {imported}"
        calls = (node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call))
        for node in calls:
            called = ast.unparse(node.func)
            if called == "open" or called.endswith(CALLS_NOT_ARITHMETIC[1:]):
                yield f"{name}:{node.lineno} calls {called}"


def no_file_imports_itself_through_others():
    links = {}
    for name, other in edges():
        links.setdefault(name, set()).add(other)

    @cache
    def reachable(start):
        seen, waiting = set(), [start]
        while waiting:
            new = links.get(waiting.pop(), set()) - seen
            seen |= new
            waiting += new
        return seen

    yield from (f"{name} -> {other}" for name, other in edges() if name in reachable(other))


def the_whole_configuration_is_taken_by_daemon_and_ui():
    for name, other in edges():
        if other == "costprobe.configuration" and room_of(name) not in {"daemon", "ui"}:
            yield f"{name} imports {other}"


def agent_imports_the_wire_and_the_kinds_of_probes():
    for name, other in edges():
        is_of_probes = [room_of(one) == "costprobe_probes" for one in (name, other)]
        is_place = name.startswith(tuple(TABLES["places_of_probes"]))
        is_for_agent = other.removeprefix("costprobe_probes.") in TABLES["probes_for_agent"]
        if is_of_probes == [True, False] or (
            is_of_probes == [False, True] and not (is_place and is_for_agent)
        ):
            yield f"{name} imports {other}"


def core_and_probes_import_few_packages():
    for package, allowed in (("costprobe", "pydantic"), ("costprobe_probes", "torch")):
        for name, path in modules(package).items():
            if room_of(name) in {"core", "costprobe_probes"}:
                found = roots_of(path) - set(sys.stdlib_module_names) - {allowed, package}
                yield from (f"{name} imports {root}" for root in found)


def files_have_600_code_lines_at_most():
    """Without docstrings, comments and blank lines."""
    for name, path in (*modules().items(), *modules("costprobe_probes").items()):
        docs = set()
        for node in ast.walk(tree_of(path)):
            has_body = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            if has_body and ast.get_docstring(node, clean=False) is not None:
                docs |= {*range(node.body[0].lineno, node.body[0].end_lineno + 1)}
        lines = enumerate(map(str.strip, path.read_text().splitlines()), 1)
        count = sum(line[:1] not in {"", "#"} and number not in docs for number, line in lines)
        if count > TABLES["larger"].get(name, MAX_CODE_LINES):
            yield f"{path.relative_to(ROOT)}: {count} code lines; split it by its ideas"


RULES = (
    rooms_import_what_the_table_names,
    adapters_import_core_http_host_and_their_own_folder,
    the_outside_world_is_imported_by_adapters,
    drivers_are_imported_in_the_sensor_child_and_torch_in_probes,
    files_that_do_things_are_listed_and_all_others_are_arithmetic,
    no_file_imports_itself_through_others,
    the_whole_configuration_is_taken_by_daemon_and_ui,
    agent_imports_the_wire_and_the_kinds_of_probes,
    core_and_probes_import_few_packages,
    files_have_600_code_lines_at_most,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule(rule):
    offenders = list(rule())
    assert not offenders, "\n".join(offenders)


def test_old_name_does_not_occur():
    """Another program has the name: the comparison of rules for tokens names it."""
    named = (":!CHANGELOG.md", ":!docs/token_split.md", ":!bench/*token?split*")
    old = "infer" + "cost"
    for command in (["grep", "-il", old, "--", ".", *named], ["ls-files", f"*{old}*"]):
        done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, check=False)
        assert done.stdout == b""


def test_top_level_contains_the_rooms_only():
    folder = SOURCES["costprobe"] / "costprobe"
    assert {path.stem for path in folder.glob("*.py")} == TOP_FILES
    folders = {path.name for path in folder.iterdir() if any(path.glob("*.py"))}
    assert folders == {"core", "adapters", *ROOMS, "daemon", "ui"}
    order = list(ROOMS)
    for room, others in ROOMS.items():
        assert all(order.index(other) < order.index(room) for other in others), room


def test_configuration_loads_no_client_of_a_kind():
    program = "import sys, costprobe.configuration; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    unwanted = {"urllib3", "sqlite3", "numpy", "influxdb_client", "apprise", "ssl", "torch"}
    assert not unwanted & set(loaded)
