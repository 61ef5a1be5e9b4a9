"""Every parser of text from outside has limits on size, depth and time."""

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
from fakes.cases import check_all

METHODS = re.compile(r"\.(model_validate_json|validate_json|raw_decode)\(")


def test_no_method_parses_json_without_limits():
    """Functions of other parsers are banned by ruff (TID251)."""
    for package in (costprobe, costprobe_probes):
        for path in Path(package.__file__).parent.rglob("*.py"):
            assert not METHODS.search(path.read_text()), path


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
        parse_exposition(b"process_start_time_seconds 1\n" * 6000, ["hits_total"])
