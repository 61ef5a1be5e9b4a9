"""Annotations: which are stored, how, and which are rejected."""

import pytest
from costprobe.adapters.host.host_name import host_tags
from costprobe.adapters.store.ledger import StoreLedger
from costprobe.adapters.store.read import StoreReader
from costprobe.adapters.store.write import Store
from costprobe.configuration import Config
from costprobe.core.records import NS_PER_S
from costprobe.drift.annotations import Annotations
from fakes.cases import check_all
from fakes.clock import FakeClock

NOW_NS = 1_790_000_000 * NS_PER_S
CONFIG = Config.model_validate(
    {
        "host": {"name": "h"},
        "probe": [{"name": "ranker"}],
        "service": [
            {"name": "chat", "url": "http://127.0.0.1:1", "engine": "vllm", "devices": ["gpu0"]}
        ],
    }
)


def left(uuid):
    if uuid != "GPU-1":
        raise ValueError(f"device: no board {uuid!r} is absent")
    return "gpu3"


@pytest.fixture
def annotated(tmp_path):
    """Annotations, and the rows that they are in the store."""
    store = Store.open(tmp_path / "costprobe.db", FakeClock(NOW_NS))
    known = {"device": ["gpu0"], "probe": ["ranker"], "service": ["chat"]}
    clock = FakeClock(NOW_NS)
    yield Annotations(known, host_tags(CONFIG.host), StoreLedger(store), clock, left), store.path
    store.close()


def rows(path):
    reader = StoreReader.open(path)
    try:
        return list(reader.points("event", 0, 2 * NOW_NS))
    finally:
        reader.close()


def test_annotation_is_an_event(annotated):
    annotations, path = annotated
    document = annotations.add(
        {"text": "deployed\nv42 \x1b[31m", "service": "chat", "at": "10m", "author": "ci"}
    )
    (row,) = rows(path)
    assert row.tags == {"host": "h", "kind": "annotation", "service": "chat"}
    assert row.fields == {"severity": "info", "title": "deployed v42 [31m", "detail": "by ci"}
    assert 0 <= row.time_ns - (NOW_NS - 600 * NS_PER_S) < 1_000_000
    assert document == {
        "time_ns": row.time_ns,
        "text": "deployed v42 [31m",
        "device": None,
        "probe": None,
        "service": "chat",
        "author": "ci",
    }


def test_repeated_annotation_is_stored_once_and_another_text_apart(annotated):
    annotations, path = annotated
    at = "2026-09-01T12:00:00Z"
    for text in ("deployed v42", "deployed v43", "deployed v42"):
        annotations.add({"text": text, "at": at})
    assert sorted(row.fields["title"] for row in rows(path)) == ["deployed v42", "deployed v43"]


def test_invalid_annotations_are_rejected(annotated):
    annotations, path = annotated

    def check(change, words):
        with pytest.raises(ValueError, match=words):
            annotations.add({"text": "deployed v42", **change})

    check_all(
        check,
        [
            ({"text": None}, "text: is empty"),
            ({"text": " \n"}, "text: is empty"),
            ({"text": 42}, "text: is not a text of at most 500"),
            ({"text": "x" * 501}, "text: is not a text of at most 500"),
            ({"at": "later"}, "at: 'later' is not a duration"),
            ({"at": "2027-01-01T00:00:00Z"}, "at: is in the future"),
            ({"at": NOW_NS}, "at: is not a text"),
            ({"service": "cat"}, "there is no service 'cat'; there are: chat"),
            ({"probe": "chat"}, "there is no probe 'chat'; there are: ranker"),
            ({"device": "gpu1"}, "there is no device 'gpu1'; there are: gpu0"),
            ({"serviceX": "chat"}, "'serviceX': no such key; there are: text, at"),
        ],
    )
    assert rows(path) == []


def test_board_that_was_removed_is_an_annotation_of_its_name(annotated):
    annotations, path = annotated
    annotations.add({"device": "GPU-1", "left": True})
    with pytest.raises(ValueError, match="no board 'gpu0' is absent"):
        annotations.add({"device": "gpu0", "left": True})
    (row,) = rows(path)
    assert (row.tags["device"], row.fields["title"]) == ("gpu3", "GPU-1 was removed")
