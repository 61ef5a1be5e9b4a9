"""What cannot be done ends with one line that states the fix, and with the exit code of its kind."""

from costprobe.ui.cli.support.known_names import unknown_name
from fakes.cases import check_all
from fakes.cli import host, session, stopped_clock
from fakes.command import called
from fakes.reported import month

BUDGET = '[[price]]\nplan = "on_demand"\nper_hour = 2\n[[budget]]\nname = "a"\namount = 1\n'
READING = (
    "status", "trend", "export", "compare", "spend", "savings", "budget", "forecast", "explain", "alerts",
    "alerts history", "price history", "report", "replay", "sink rejected", "store check", "store compact",
)  # fmt: skip
FAULTY = (
    ('[[probe]]\nname = "x"\nevry = "5m"\n', 'probe[0].evry: unknown key; did you mean "every"?'),
    (BUDGET + "period = 'day'\nperoid = 'day'", 'did you mean "period"?'),
)


def test_each_error_states_the_fix_and_has_the_exit_code_of_its_kind(tmp_path):
    with stopped_clock():
        config = month(tmp_path, hours=3)
        config.write_text(config.read_text() + host("errors"))
        session("errors", config)


def test_store_that_cannot_be_read_and_a_faulty_file_are_bad_input(tmp_path):
    config, store = tmp_path / "costprobe.toml", tmp_path / "costprobe.db"
    config.write_text(f'[store]\npath = "{store}"\n{BUDGET}period = "day"\n')

    def without_store(line):
        output = called(config, *line.split(), code=2).output
        assert "start `costprobe run`, which creates it" in output
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


def test_many_names_are_shortened():
    text = unknown_name("device", "gpu7x", [f"gpu{number}" for number in range(64)]).message
    assert "; did you mean gpu7? write one of gpu0, gpu1, gpu2," in text
    assert text.endswith(" and 44 more")
