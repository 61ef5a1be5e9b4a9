"""Parsing expositions: exact counts, and one clear error for hostile or malformed ones."""

import pytest
from costprobe.adapters.engines.exposition import (
    MAX_BYTES,
    MAX_LINE_BYTES,
    MAX_LINES,
    MAX_SERIES,
    ScrapeError,
    parse_exposition,
)
from hypothesis import given
from hypothesis import strategies as st
from record.record_files import check_outcomes

WANTED = frozenset({"hits_total", "time_seconds_sum"})


def parse(text):
    return parse_exposition(
        text if isinstance(text, bytes) else text.encode(), WANTED, ["hi", "ho"]
    )


def test_expositions_are_parsed_or_rejected_with_their_line():
    """Only wanted counters are read. The record has all that is found; see `record_files`."""

    def found_in(text):
        found = parse(text)
        samples = {
            name: [[dict(one.labels), one.value, one.created_s] for one in samples]
            for name, samples in found.samples.items()
        }
        return [samples, found.started_s, found.types, sorted(found.prefixes)]

    check_outcomes("exposition_texts.json", found_in, ScrapeError)
    for body, words in (
        (b"hits_total " + b"9" * 400 + b"\n", "is not in the Prometheus text format"),
        (b"hits_total 1\n\xff\xfe\n", "not UTF-8 text"),
        (b"x" * (MAX_LINE_BYTES + 1) + b"\n", "a line of the response is longer than"),
        (b'hits_total{a="%b"} 1\n' % (b"x" * 3000), "characters for one series"),
        (b"\n" * (MAX_BYTES + 1), f"larger than {MAX_BYTES} bytes"),
        (b"\n" * (MAX_LINES + 1), f"more than {MAX_LINES} lines"),
        (b"".join(b'hits_total{a="%d"} 1\n' % i for i in range(MAX_SERIES + 1)), "more than 5000"),
    ):
        with pytest.raises(ScrapeError, match=rf"\A.{{0,60}}{words}.{{0,100}}\Z"):
            parse(body)


@given(st.text(max_size=200), st.binary(max_size=200))
def test_any_bytes_are_parsed_or_rejected(text, raw):
    for body in (raw, f"hits_total{text}\n".encode("utf-8", "replace")):
        try:
            found = parse(body)
        except ScrapeError:
            continue
        for samples in found.samples.values():
            assert all(sample.value >= 0 for sample in samples)
