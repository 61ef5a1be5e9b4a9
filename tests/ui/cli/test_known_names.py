"""A name that neither the store nor the configuration knows ends a command with the known ones."""

import pytest
from costprobe.ui.cli.support.known_names import unknown_name
from fakes.cases import check_all
from fakes.command import called
from fakes.reported import month


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return month(tmp_path_factory.mktemp("names"), hours=3)


# A command line, what is unknown in it, and what the message must name.
UNKNOWN = (
    ("trend --device gpu7", "unknown device 'gpu7'; did you mean gpu0? write one of gpu0"),
    (
        "trend --probe rankr",
        "unknown probe 'rankr'; did you mean ranker? write one of encoder, ranker",
    ),
    ("trend --service shp", "unknown service 'shp'; did you mean shop? write one of shop"),
    ("trend --label currency=USD", "unknown currency 'USD'; write one of EUR"),
    ("trend --label team=search", "unknown team 'search'; write one of retail"),
    ("explain --device 7", "unknown device '7'; write one of gpu0"),
    ("compare --device gpu", "unknown device 'gpu'; did you mean gpu0? write one of gpu0"),
    ("compare --only shp", "unknown probe or service 'shp'; did you mean shop?"),
    ("compare --currency USD", "unknown currency 'USD'; write one of EUR"),
    ("savings --service x", "unknown service 'x'; write one of shop"),
    ("savings --probe x", "unknown probe 'x'; write one of encoder, ranker"),
    ("annotate deployed --device x", "unknown device 'x'; write one of gpu0"),
    ("report --by taem", "unknown label 'taem'; "),
    ("budget gpu", "unknown budget 'gpu'; did you mean gpus? write one of gpus"),
    ("forecast x", "unknown service or device 'x'; write one of "),
    ("probe x", "unknown probe 'x'; write one of cnn, decoder:1B/decode, "),
    ("probe ranker --sweep --stored --device x", "unknown device 'x'; write one of gpu0"),
)


def test_unknown_names_are_named_with_the_known_ones(config):
    def check(line, message):
        assert message in called(config, *line.split(), code=2).stderr

    check_all(check, UNKNOWN)


def test_none_or_many_names_are_known():
    assert unknown_name("service", "chat", []).message == "unknown service 'chat'; none is known"
    text = unknown_name("device", "gpu7x", [f"gpu{number}" for number in range(64)]).message
    assert "; did you mean gpu7? write one of gpu0, gpu1, gpu2," in text
    assert text.endswith(" and 44 more")
