"""What cannot be done ends with one line that states the fix, and with the exit code of its kind."""

import pytest
from costprobe.ui.cli.support.known_names import unknown_name
from fakes.cases import check_all
from fakes.command import called
from fakes.reported import month

CONFIG = """
[[probe]]
name = "chat"
kind = "openai"
model = "m"
url = "http://127.0.0.1:9"
[[sink]]
name = "db"
api = "v1"
url = "http://127.0.0.1:9"
database = "d"
"""
BUDGET = '[[price]]\nplan = "on_demand"\nper_hour = 2\n[[budget]]\nname = "a"\namount = 1\n'
SILENCE = "silence --match device=gpu0 --for 2h --comment c"
EARLIER, LATER = "--between 2d 1d", "--and 1d 0s"
# A command line, its exit code, and what it must say.
ERRORS = (
    ("prbe", 2, "unknown command 'prbe'; did you mean probe? write one of alerts, annotate"),
    ("silence device=gpu0", 2, "write one of end; or: costprobe silence --match device=gpu0 --for"),
    ("trend --device gpu7", 2, "unknown device 'gpu7'; did you mean gpu0? write one of gpu0"),
    ("trend --probe rankr", 2, "unknown probe 'rankr'; did you mean ranker? write one of chat, encoder, "),
    ("trend --service shp", 2, "unknown service 'shp'; did you mean shop? write one of shop"),
    ("trend --label currency=USD", 2, "unknown currency 'USD'; write one of EUR"),
    ("trend --label team=search", 2, "unknown team 'search'; write one of retail"),
    ("trend --field cost_per_inferense", 2, "did you mean cost_per_inference"),
    ("trend --field zzz", 2, "unknown field"),
    ("trend --field stop_reason", 2, "not numeric"),
    ("trend --field device.cost_per_inference", 2, "unknown field"),
    ("explain --device 7", 2, "unknown device '7'; write one of gpu0"),
    ("explain --between 3d 2d", 2, "give --since, or --between"),
    (f"explain --since 1d {EARLIER} {LATER}", 2, "give --since, or --between"),
    (f"explain --between 2d 3d {LATER}", 2, "must end after its start"),
    ("explain --between 3d 1d --and 2d 0s", 2, "the earlier one before the later"),
    ("explain --since soon", 2, "is not a duration"),
    ("compare --device gpu", 2, "unknown device 'gpu'; did you mean gpu0? write one of gpu0"),
    ("compare --only shp", 2, "unknown probe or service 'shp'; did you mean shop?"),
    ("compare --currency USD", 2, "unknown currency 'USD'; write one of EUR"),
    ("compare --label team", 2, "write NAME=VALUE"),
    ("compare --quality nan", 2, "'nan' is not a finite number"),
    ("compare --p99 50", 2, "is not a duration"),
    ("compare --since 1m", 1, "no sample since"),
    ("spend --since 1h --until 2h", 2, "must be before"),
    ("export --since yesterdayish", 2, "is not a duration"),
    ("export --format focus --measurement probe", 2, "--measurement"),
    ("export --period hour", 2, "--format focus"),
    ("savings --service x", 2, "unknown service 'x'; write one of shop"),
    ("savings --probe x", 2, "unknown probe 'x'; write one of chat, encoder, ranker"),
    ("savings --reserved 1y", 2, "--reserved 1y: write TERM=DISCOUNT"),
    ("savings --reserved soon=10%", 2, "--reserved: term"),
    ("savings --reserved 1y=1.5", 2, "--reserved: discount"),
    ("savings --since 1s", 1, "no device row since"),
    ("annotate deployed --device x", 2, "unknown device 'x'; write one of gpu0"),
    ("report --by taem", 2, "unknown label 'taem'; "),
    ("report --since 1d --until 2d", 2, "must be before"),
    ("report --since 1d --out /proc/none/r", 2, "cannot be written"),
    ("dashboard --listen 0.0.0.0:9470", 2, "--allow-remote"),
    ("dashboard --listen 9470", 2, "is not an address and port"),
    ("dashboard --listen example.org:80", 2, "is not an IP address"),
    ("dashboard --listen 127.0.0.1:99999", 2, "is not an address and port"),
    ("budget gpu", 2, "unknown budget 'gpu'; did you mean gpus? write one of gpus"),
    ("forecast x", 2, "unknown service or device 'x'; write one of "),
    ("forecast --horizon 2y", 2, "write a time from 1d to 365d"),
    ("price list --gpu Voodoo2", 2, "no price matches"),
    ("price list --gpu Voodoo2 --json", 2, "no price matches"),
    ("trend --since 1m", 1, "no cost_per_inference since"),
    ("price list --apis --gpu H100", 2, "remove the other filters"),
    ("probe x", 2, "unknown probe 'x'; write one of chat, cnn, decoder:1B/decode, "),
    ("probe chat --sweep", 2, "a server chooses its own batches; use --load"),
    ("probe chat --yes", 2, "--yes needs --load"),
    ("probe chat --stored", 2, "--stored needs --sweep or --load"),
    ("probe chat --load --naive", 2, "--load and --naive are different measurements: keep one"),
    ("probe ranker --load", 2, "only a server has a load curve; use --sweep"),
    ("probe ranker --sweep --stored --device x", 2, "unknown device 'x'; write one of gpu0"),
    ("probe ranker --sweep --stored", 1, "no sweep of ranker is stored; run: costprobe probe ranker"),
    ("probe chat --load --stored", 1, "no load curve of chat is stored; run: costprobe probe chat"),
    ("alerts", 3, "no daemon has evaluated alert rules yet"),
    ("alerts --exit-code", 3, "no daemon has evaluated alert rules yet"),
    ("alerts test", 2, "no notifier is configured; add a [[notifier]]"),
    ("silence --for 2h --comment c", 2, "give --match, --for and --comment"),
    ("silence --match device=gpu0 --comment c", 2, "give --match, --for and --comment"),
    ("silence --match device=gpu0 --for 2h", 2, "give --match, --for and --comment"),
    (SILENCE.replace("device=gpu0", "gpu0"), 2, "write NAME=VALUE"),
    (SILENCE.replace("2h", "soon"), 2, "is not a duration"),
    (SILENCE, 3, "no daemon answers"),
    ("silence end x", 3, "check that it is running: costprobe status"),
    ("sink retry", 3, "no daemon answers"),
    ("sink rejected odd", 2, "unknown sink 'odd'"),
    ("replay --set detection.least_effect", 2, "write KEY=VALUE"),
    ("replay --set detection.least_efect=3%", 2, 'did you mean "least_effect"?'),
    ("replay --set rule.drifft.at_least=3%", 2, "unknown section 'drifft'"),
    ("replay --set rule.drift.at_least=lots", 2, "rule[0].at_least"),
    ("replay --set rule=3", 2, "rule"),
    ("status", 3, "no daemon has written a status yet; start one: costprobe run"),
    ("config init /proc/none/x.toml", 2, "cannot be written"),
    ("grafana provision /proc/none", 2, "cannot be written"),
)  # fmt: skip
READING = (
    "status", "trend", "export", "compare", "spend", "savings", "budget", "forecast", "explain", "alerts",
    "alerts history", "price history", "report", "replay", "sink rejected", "store check", "store compact",
)  # fmt: skip
FAULTY = (
    ('[[probe]]\nname = "x"\nevry = "5m"\n', 'probe[0].evry: unknown key; did you mean "every"?'),
    (BUDGET + "period = 'day'\nperoid = 'day'", 'did you mean "period"?'),
)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = month(tmp_path_factory.mktemp("errors"), hours=3)
    with path.open("a") as file:
        file.write(CONFIG)
    return path


def test_each_error_states_the_fix_and_has_the_exit_code_of_its_kind(config):
    def check(line, code, words):
        done = called(config, *line.split(), code=code)
        assert words in " ".join(done.stderr.split()), done.output
        assert "Traceback" not in done.output

    check_all(check, ERRORS)


def test_store_that_cannot_be_read_and_a_faulty_file_are_bad_input(tmp_path):
    config, store = tmp_path / "costprobe.toml", tmp_path / "costprobe.db"
    config.write_text(f'[store]\npath = "{store}"\n{BUDGET}period = "day"\n')

    def without_store(line):
        assert (
            "start `costprobe run`, which creates it"
            in called(config, *line.split(), code=2).output
        )
        assert not store.exists()

    check_all(without_store, READING)
    called(config, "alerts", "--exit-code", code=3)
    store.write_text("no database")
    called(config, "alerts", "--exit-code", code=3)
    assert "is not a database" in called(config, "status", code=1).output

    def faulty(text, words):
        config.write_text(f'[store]\npath = "{store}"\n{text}\n')
        for command in ("config check", "run", "status", "probe", "doctor", "trend"):
            output = called(config, *command.split(), code=2).output
            assert str(config) in output, command
            assert words in output, command

    check_all(faulty, FAULTY)


def test_none_or_many_names_are_known():
    assert unknown_name("service", "chat", []).message == "unknown service 'chat'; none is known"
    text = unknown_name("device", "gpu7x", [f"gpu{number}" for number in range(64)]).message
    assert "; did you mean gpu7? write one of gpu0, gpu1, gpu2," in text
    assert text.endswith(" and 44 more")
