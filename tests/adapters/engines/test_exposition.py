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

WANTED = frozenset({"hits_total", "time_seconds_sum"})


def parse(text):
    return parse_exposition(
        text if isinstance(text, bytes) else text.encode(), WANTED, ["hi", "ho"]
    )


def test_only_wanted_counters_are_parsed():
    found = parse(
        "# HELP hits_total Hits.\n# TYPE hits_total counter\n"
        'hits_total{model="a b",x="}\\"{"} 12 1700000000000\n'
        'hits_total{model="c"} 3e2\n'
        'hits_created{model="c"} 1.7e9\n'
        "time_seconds_sum 1.5\n"
        "process_start_time_seconds 1.6e9\n"
        "other NaN\nother NaN\nmalformed { of an unused counter\n"
    )
    hits = {dict(sample.labels)["model"]: sample for sample in found.samples["hits_total"]}
    assert hits["a b"].value == 12
    assert dict(hits["a b"].labels)["x"] == '}"{'
    assert (hits["c"].value, hits["c"].created_s) == (300, 1.7e9)
    assert found.samples["time_seconds_sum"][0].value == 1.5
    assert found.started_s == 1.6e9
    assert found.types == {"hits_total": "counter"}
    assert found.type_of("hits_total") == "counter"
    assert found.prefixes == {"hi"}


def test_invalid_exposition_is_rejected_in_one_line():
    many = "".join(f'hits_total{{a="{i}"}} 1\n' for i in range(MAX_SERIES + 1))
    no_format = "is not in the Prometheus text format"
    wrong = []
    for text, words in (
        ("hits_total NaN\n", "line 1: hits_total is nan"),
        ("hits_total +Inf\n", "hits_total is inf"),
        ("hits_total -3\n", "hits_total is -3"),
        ("hits_total 1e300\n", "hits_total is 1e+300"),
        ("\nhits_total 1\nhits_total 2\n", "hits_total appears twice"),
        ('hits_total{a="1",b="2"} 1\nhits_total{b="2",a="1"} 1\n', "appears twice"),
        ("hits_total one\n", 'is not in the Prometheus text format: "hits_total one"'),
        ("hits_total\n", no_format),
        ('hits_total{a="1" 5\n', no_format),
        ('hits_total{a="1",a="2"} 5\n', no_format),
        ("hits_total " + "9" * 400 + "\n", no_format),
        ("hits_total 12", "ends within a line"),
        ("<html>no metrics here</html>", "not in the Prometheus text format"),
        (b"hits_total 1\n\xff\xfe\n", "not UTF-8 text"),
        ("x" * (MAX_LINE_BYTES + 1) + "\n", "a line of the response is longer than"),
        (f'hits_total{{a="{"x" * 3000}"}} 1\n', "characters for one series"),
        (b"\n" * (MAX_BYTES + 1), f"larger than {MAX_BYTES} bytes"),
        (b"\n" * (MAX_LINES + 1), f"more than {MAX_LINES} lines"),
        (many, "more than 5000 series"),
    ):
        with pytest.raises(ScrapeError) as caught:
            parse(text)
        shown = str(caught.value)
        if words not in shown or "\n" in shown or len(shown) >= 200:
            wrong.append((text[:30], shown))
    assert wrong == []


@given(st.text(max_size=200), st.binary(max_size=200))
def test_any_bytes_are_parsed_or_rejected(text, raw):
    for body in (raw, f"hits_total{text}\n".encode("utf-8", "replace")):
        try:
            found = parse(body)
        except ScrapeError:
            continue
        for samples in found.samples.values():
            assert all(sample.value >= 0 for sample in samples)
