"""The tutorial from its first line to its last, with a real daemon, a real InfluxDB, real HTTP."""

import time

import pytest
from docs_pages import BIN, DOCS, Terminal, blocks, commands, replaced, section
from fakes.servers import free_port, require

TUTORIAL = (DOCS / "tutorial.md").read_text()
STEPS = {
    heading[4:].split(". ", 1)[1]: commands(section("tutorial.md", heading))
    for heading in TUTORIAL.splitlines()
    if heading.startswith("## ") and heading[3].isdigit()
}

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def terminal(tmp_path):
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.close()


def test_every_command_is_in_a_step_that_is_tested():
    assert list(STEPS) == [
        "A first figure",
        "A database",
        "A configuration",
        "Somebody to tell",
        "The alert",
        "The series",
        "Clean up",
    ]
    assert sum(map(len, STEPS.values())) == len(commands(TUTORIAL)), "a command is in no step"


def test_a_first_figure_is_the_readmes():
    """That one is typed as it stands beside a real daemon (tests/cli/test_readme.py)."""
    readme = commands(section("../README.md", "## Try it"))
    step = STEPS["A first figure"]
    assert len(step) == 3
    assert readme[: len(step)] == step


def test_from_a_configuration_to_an_alert_and_its_end(terminal, tmp_path, own_influxdb):
    require("curl")
    ports = {"8086": own_influxdb.port, "9377": free_port()}
    config = blocks(TUTORIAL, "toml")["infercost.toml"]
    # A run of the probe takes as long as its energy needs, and its latency no longer than that.
    shorter = {"batch = 1\n": 'batch = 1\nsample_cap = "1s"\n'}
    (tmp_path / "infercost.toml").write_text(replaced(config, {**ports, **shorter}))
    receiver = blocks(TUTORIAL, "python")["receiver.py"]
    (tmp_path / "receiver.py").write_text(replaced(receiver, {"9377": ports["9377"]}))

    def type_all(step, first=0, last=None):
        lines = [line.replace(".venv/bin/", f"{BIN}/") for line in STEPS[step][first:last]]
        return [terminal.type(line.replace(":8086", f":{ports['8086']}")) for line in lines]

    checked, shown, made = type_all("A configuration")
    assert "infercost.toml: good" in checked
    assert "would make: database infercost" in shown
    assert "made: database infercost" in made

    type_all("Somebody to tell", 0, 2)
    terminal.until("infercost.log", "store: ")
    wait_for_socket(tmp_path / "control.sock")
    assert "me: sent" in type_all("Somebody to tell", 2, 3)[0]
    terminal.until("received.txt", "This is a test")
    assert "firing info test" in type_all("Somebody to tell", 3)[0]

    terminal.until("received.txt", "firing warning too-slow")
    log, fires, received = type_all("The alert", 0, 3)
    assert "per 1,000" in log
    assert "FIRING   warning  too-slow" in fires
    assert "above 0.001" in received
    assert "good" in "".join(type_all("The alert", 3, 6))
    terminal.until("infercost.log", "reloaded")
    terminal.until("received.txt", "resolved warning too-slow")
    told, history = type_all("The alert", 6)
    assert told.count("too-slow") == 2
    assert "too-slow" in history

    answer, sink, rows, price = type_all("The series")
    assert '"values":[[' in answer
    assert "influxdb" in sink
    assert "cost_per_inference" in rows
    assert "$2.5/h" in price

    terminal.type("set +e")
    type_all("Clean up", 0, 2)
    terminal.type("wait")
    type_all("Clean up", 2)
    assert {path.name for path in tmp_path.iterdir()} <= {"influxdb", "state"}


def wait_for_socket(path):
    """Waits until the daemon can be asked."""
    ends_s = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < ends_s
        time.sleep(0.1)
