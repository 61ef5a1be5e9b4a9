"""The rules of docs/architecture.md about rooms: each test prints every offender at once.

Imports under TYPE_CHECKING count like all others.
"""

import ast
import subprocess
import sys
import tokenize
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {"costprobe": ROOT / "agent", "costprobe_probes": ROOT / "probes"}
# What a room may import, beside core and adapters. A room imports only rooms above it in this table,
# so that no circle can arise.
ROOMS = {
    "pricing": set(),
    "delivery": set(),
    "unit_costs": set(),
    "spend": set(),
    "devices": {"pricing"},
    "probing": {"devices", "pricing"},
    "serving": {"devices", "pricing"},
    "drift": {"probing", "unit_costs"},
    "alerts": {"drift", "delivery"},
    "savings": {"pricing", "probing", "serving", "unit_costs"},
    "fleet": {"drift", "spend", "unit_costs", "delivery"},
}
# Every room's sections in one file, the process, and what people see: each may import all before it.
ABOVE = ("configuration", "daemon", "ui")
TOP_FILES = {"__init__", "__main__", "client", "configuration"}
# Adapters that serve the other adapters.
SERVING_OTHERS = {"http": {"host"}, "host": set()}
# The outside world: modules that only adapters import, and these files.
OUTSIDE = {"socket", "ssl", "urllib3", "sqlite3", "ctypes", "pynvml", "subprocess"}
OUTSIDE_TOO = {
    "costprobe.daemon.control",
    "costprobe.daemon.systemd",
    "costprobe.delivery.apprise",
    "costprobe.delivery.influx",
    "costprobe.ui.cli.debug",
    "costprobe.ui.cli.support.checks",
    "costprobe.ui.cli.support.control_client",
    "costprobe.ui.cli.support.service_files",
    "costprobe.ui.dashboard.serving",
}
# The files of rooms that do things: they read or write the store, speak with an adapter or have
# threads. All others are arithmetic.
DOING = {
    "alerts": {"watching", "faults", "replay"},
    "delivery": {
        "influx",
        "otlp",
        "alertmanager",
        "webhook",
        "apprise",
        "apprise_child",
        "kinds",
        "loop",
        "delivery",
    },
    "devices": {"charges", "readings", "server", "use"},
    "drift": {"explain", "annotations"},
    "fleet": {
        "answers",
        "bills",
        "hosts",
        "spend",
        "unit_costs",
        "report",
        "outliers",
        "rollouts",
        "watch",
    },
    "pricing": {"catalogue_files", "plans", "prices"},
    "probing": {"settings", "run", "jobs", "rows"},
    "savings": {"gather"},
    "serving": {
        "settings",
        "meter",
        "service",
        "device_costs",
        "pods",
        "latency_watch",
    },
    "spend": {"query", "bills", "charges", "now", "evaluate", "server"},
    "unit_costs": {"now", "price_files"},
}
NOT_ARITHMETIC = {"os", "threading", "time", "random"}
CALLS_NOT_ARITHMETIC = {"open", "datetime.now", "read_text", "read_bytes"}
# Records of adapters, which arithmetic may take.
RECORDS = {
    "sensors.messages",
    "probe_child.results",
    "engines.tables",
    "engines.settings",
    "clouds.bills",
    "clouds.regions",
    "clouds.source",
    "http.access",
    "databases.question",
}
# Of the probes the agent imports what the wire needs and the name of the processor, in these places.
PLACES_OF_PROBES = (
    "costprobe.adapters.load_child.",
    "costprobe.adapters.sensors.child.cpu",
    "costprobe.probing.settings",
)
PROBES_FOR_AGENT = {"wire", "stats", "processor", "sources.kinds"}
MAX_CODE_LINES = 600
NO_CODE = {
    tokenize.ENCODING,
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
# Files that are to be rewritten smaller, with the code lines that each may have until then.
LARGER = {
    "costprobe.drift.causes": 680,
}


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


def edges():
    """(importing module, imported module) of both packages."""
    names = {**modules("costprobe"), **modules("costprobe_probes")}
    for name, path in names.items():
        for imported in sorted(imports_of(path)):
            for candidate in (imported, imported.rpartition(".")[0]):
                if candidate in names:
                    if candidate not in {name, "costprobe"}:
                        yield name, candidate
                    break


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


def test_old_name_does_not_occur():
    """Another program has the name: the comparison of rules for tokens names it."""
    named = (":!CHANGELOG.md", ":!docs/token_split.md", ":!bench/*token?split*")
    command = ["git", "grep", "-il", "infer" + "cost", "--", ".", *named]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    paths = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found += "\n".join(path for path in paths.stdout.split() if "infer" + "cost" in path)
    assert not found


def test_top_level_contains_the_rooms_only():
    folder = SOURCES["costprobe"] / "costprobe"
    files = {path.stem for path in folder.glob("*.py")}
    folders = {path.name for path in folder.iterdir() if any(path.glob("*.py"))}
    assert files == TOP_FILES
    assert folders == {"core", "adapters", *ROOMS, "daemon", "ui"}
    order = list(ROOMS)
    for room, others in ROOMS.items():
        assert all(order.index(other) < order.index(room) for other in others), room


def test_rooms_import_what_the_table_names():
    offenders = [
        f"{name} imports {other}"
        for name, other in edges()
        if not other.startswith("costprobe_probes")
        and room_of(other) not in allowed_rooms(room_of(name))
    ]
    assert not offenders, "\n".join(offenders)


def test_adapters_import_core_http_host_and_their_own_folder():
    offenders = []
    for name, other in edges():
        if room_of(name) != "adapters" or room_of(other) != "adapters":
            continue
        own, its = name.split(".")[2], other.split(".")[2]
        if its not in {own, *SERVING_OTHERS.get(own, SERVING_OTHERS)}:
            offenders.append(f"{name} imports {other}")
    assert not offenders, "\n".join(offenders)


def test_the_outside_world_is_imported_by_adapters():
    offenders = []
    for name, path in modules("costprobe").items():
        if room_of(name) == "adapters" or name in OUTSIDE_TOO:
            continue
        found = {imported.split(".")[0] for imported in imports_of(path)} & OUTSIDE
        offenders += [f"{name} imports {root}" for root in sorted(found)]
    assert not offenders, "\n".join(offenders)


def test_drivers_are_imported_in_the_sensor_child_and_torch_in_probes_only():
    offenders = []
    for name, path in modules("costprobe").items():
        allowed = {"pynvml"} if name.startswith("costprobe.adapters.sensors.child.") else set()
        roots = {imported.split(".")[0] for imported in imports_of(path)}
        offenders += [
            f"{name} imports {root}" for root in (roots & {"torch", "numpy", "pynvml"}) - allowed
        ]
    assert not offenders, "\n".join(offenders)


def test_files_of_rooms_that_do_things_are_listed_and_all_others_are_arithmetic():
    offenders = []
    for name, path in modules("costprobe").items():
        parts = name.split(".")
        room = room_of(name)
        if room not in ROOMS or len(parts) < 3 or ".".join(parts[2:]) in DOING[room]:
            continue
        for imported in sorted(imports_of(path)):
            if imported.split(".")[0] in NOT_ARITHMETIC:
                offenders.append(f"{name} imports {imported}")
            adapter = imported.removeprefix("costprobe.adapters.")
            if adapter != imported and not adapter.startswith(tuple(f"{r}." for r in RECORDS)):
                offenders.append(f"{name} imports {imported}")
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called in CALLS_NOT_ARITHMETIC or called.rpartition(".")[2] in {
                    call for call in CALLS_NOT_ARITHMETIC if call.startswith("read_")
                }:
                    offenders.append(f"{name}:{node.lineno} calls {called}")
    assert not offenders, "\n".join(offenders)


def test_listed_files_that_do_things_exist():
    names = modules("costprobe")
    missing = [
        f"{room}.{file}"
        for room, files in DOING.items()
        for file in sorted(files)
        if f"costprobe.{room}.{file}" not in names
    ]
    assert not missing


def test_no_import_circles_among_files():
    links = {}
    for name, other in edges():
        links.setdefault(name, set()).add(other)

    @cache
    def reachable(start):
        seen, waiting = set(), [start]
        while waiting:
            for other in links.get(waiting.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
        return seen

    offenders = [
        f"{name} -> {other}"
        for name, others in links.items()
        for other in sorted(others)
        if name in reachable(other)
    ]
    assert not offenders, "\n".join(offenders)


def test_the_whole_configuration_is_taken_by_daemon_and_ui_only():
    offenders = [
        f"{name} imports {other}"
        for name, other in edges()
        if other == "costprobe.configuration" and room_of(name) not in {"daemon", "ui"}
    ]
    assert not offenders, "\n".join(offenders)


def test_configuration_loads_no_client_of_a_kind():
    program = "import sys, costprobe.configuration; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    unwanted = {"urllib3", "sqlite3", "numpy", "influxdb_client", "apprise", "ssl", "torch"}
    assert not unwanted & set(loaded)


def test_agent_imports_the_wire_and_the_kinds_of_probes_only():
    offenders = []
    for name, other in edges():
        if room_of(name) == "costprobe_probes" or room_of(other) != "costprobe_probes":
            if room_of(name) == "costprobe_probes" != room_of(other):
                offenders.append(f"{name} imports {other}")
            continue
        is_place = name.startswith(PLACES_OF_PROBES)
        if not is_place or other.removeprefix("costprobe_probes.") not in PROBES_FOR_AGENT:
            offenders.append(f"{name} imports {other}")
    assert not offenders, "\n".join(offenders)


def test_core_and_probes_import_few_third_party_packages():
    offenders = []
    for package in SOURCES:
        for name, path in modules(package).items():
            room = room_of(name)
            allowed = {"torch"} if package == "costprobe_probes" else {"pydantic"}
            if room not in {"core", "costprobe_probes"}:
                continue
            roots = {imported.split(".")[0] for imported in imports_of(path)}
            found = roots - set(sys.stdlib_module_names) - allowed - {package}
            offenders += [f"{name} imports {root}" for root in found]
    assert not offenders, "\n".join(offenders)


def code_lines(path):
    """Lines that hold code: no docstring, comment or blank line."""
    docs, lines = set(), set()
    for node in ast.walk(tree_of(path)):
        has_docstring = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if has_docstring and ast.get_docstring(node, clean=False) is not None:
            docs |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type not in NO_CODE:
                lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - docs)


def test_files_have_600_code_lines_at_most():
    offenders = [
        f"{path.relative_to(ROOT)}: {lines} code lines; split it by its ideas"
        for package in SOURCES
        for name, path in modules(package).items()
        if (lines := code_lines(path)) > LARGER.get(name, MAX_CODE_LINES)
    ]
    assert not offenders, "\n".join(offenders)
