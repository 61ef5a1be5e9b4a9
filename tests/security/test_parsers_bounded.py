"""Every parser of text from outside has limits on size, depth and time."""

import ast
import re
from pathlib import Path

import costprobe
import costprobe_probes
import pytest
from costprobe.adapters.engines.exposition import MAX_PARSE_S, ScrapeError, parse_exposition
from costprobe.core.outside import (
    MAX_VALUES,
    UnusableInputError,
    bounded_json,
    bounded_toml,
    decoded_text,
)
from costprobe.daemon.control_protocol import decoded
from fakes.cases import check_all

PACKAGES = [Path(package.__file__).parent for package in (costprobe, costprobe_probes)]
# Functions that parse a format, by module; without the functions that only write one.
PARSERS = {
    "ast": {"literal_eval"},
    "configparser": {"ConfigParser", "RawConfigParser"},
    "csv": {"reader", "DictReader"},
    "json": {"load", "loads", "JSONDecoder"},
    "marshal": {"load", "loads"},
    "pickle": {"load", "loads", "Unpickler"},
    "plistlib": {"load", "loads"},
    "prometheus_client.parser": {"text_string_to_metric_families"},
    "tomllib": {"load", "loads"},
    "xml.etree.ElementTree": {"parse", "fromstring", "XML", "iterparse"},
    "yaml": {"load", "safe_load"},
}
METHODS = {"model_validate_json", "validate_json", "raw_decode"}
# Only modules that mention a parser are analysed, which takes a fraction of the time.
MENTIONS = re.compile(
    "|".join(
        [*METHODS, r"import \S+ as \w", "ElementTree"]
        + [rf"from {module} import|\b{module}\.({'|'.join(PARSERS[module])})" for module in PARSERS]
    )
)
LIMITS = "the limits themselves"
# The bounded functions, and parsers with limits of their own.
BOUNDED = {
    "costprobe/core/outside.py": LIMITS,
    "costprobe_probes/wire.py": "lines of at most MAX_LINE_CHARS of the process that started it",
    "costprobe/adapters/engines/exposition.py": "one line of at most MAX_SERIES_CHARS at a time",
    "costprobe/pricing/catalogue.py": "text of at most 1 MiB, limited to MAX_ROWS",
    "costprobe/pricing/timed.py": "text of at most 1 MiB, limited by its reader",
    "costprobe/ui/cli/replay.py": "the operator's own file, limited to MAX_ROWS",
}


def parser_calls(tree):
    """Yield the parsers that a module imports or calls."""
    named = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            named |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                named[alias.asname or alias.name] = full
                if alias.name in PARSERS.get(node.module, ()):
                    yield full
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            home = named.get(ast.unparse(node.value), "")
            if node.attr in PARSERS.get(home, ()) or node.attr in METHODS:
                yield f"{home}.{node.attr}"


def test_only_bounded_modules_parse():
    found, used = {}, set()
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            name = str(path.relative_to(package.parent))
            text = path.read_text()
            calls = set(parser_calls(ast.parse(text))) if MENTIONS.search(text) else set()
            if calls and name in BOUNDED:
                used.add(name)
            elif calls:
                found[name] = calls
    assert found == {}, "use costprobe.core.outside"
    assert used == set(BOUNDED), "remove modules that parse no more"


NESTED = [b"[" * 30_000, b"[" * 30_000 + b"]" * 30_000, b'{"a":' * 10_000 + b"1" + b"}" * 10_000]
HOSTILE_JSON = [
    *NESTED,
    b'{"a":' + b"[" * 100 + b"]" * 100 + b"}",
    b"[" + b"[]," * MAX_VALUES + b"1]",
    b"1" * 5000,
    b"{",
    b"\xff",
    b"",
]


def test_hostile_json_is_one_kind_of_error():
    def is_rejected(document):
        with pytest.raises(ValueError, match=r"\A[ -~]{1,99}\Z"):
            bounded_json(document)

    check_all(is_rejected, HOSTILE_JSON)
    text = b'[{"a": ["[[[[", 1.5]}, ' + b"[[]]," * 100 + b"null]"
    assert bounded_json(text)[0] == {"a": ["[[[[", 1.5]}


def test_text_is_decoded_as_its_byte_order_mark_states():
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        assert bounded_toml('name = "Zürich"'.encode(encoding), 99) == {"name": "Zürich"}
    wrong = {
        b"\xffx": "byte 0",
        "Zürich".encode("cp1252"): r"byte 1\); save it as UTF-8",
        "a".encode("utf-16-le"): "NUL",
        b"\xff\xfea": "UTF-8",
        b"x" * 100: "more than 99 bytes",
    }
    for content, problem in wrong.items():
        with pytest.raises(UnusableInputError, match=problem):
            decoded_text(content, 99)


def test_hostile_toml_is_one_kind_of_error():
    def is_rejected(document):
        with pytest.raises(UnusableInputError):
            bounded_toml(document, 1 << 20)

    texts = [b"a = " + b"[" * 5000, b"a = " + b"9" * 5000, b"\xff", b"a = ", b" " * (1 << 21)]
    check_all(is_rejected, texts)


def test_nested_control_request_is_malformed():
    for line in NESTED:
        with pytest.raises(UnusableInputError):
            decoded(line)


def test_metrics_page_is_parsed_within_its_cpu_time():
    """The clock counts its reads: each stands for one tenth of the limit."""
    body = b"# TYPE hits_total counter\n" * 100_000
    ticks = iter(range(1, 1000))
    with pytest.raises(ScrapeError, match="CPU time"):
        parse_exposition(
            body,
            ["hits_total"],
            max_parse_s=MAX_PARSE_S,
            cpu_s=lambda: next(ticks) * MAX_PARSE_S / 10,
        )
    assert next(ticks) <= 13


def test_metrics_page_cannot_repeat_one_line_without_end():
    with pytest.raises(ScrapeError, match="series"):
        parse_exposition(b"process_start_time_seconds 1\n" * 5000, ["hits_total"])
