"""The tutorial from its first line to its last, with a real daemon, a real InfluxDB, real HTTP."""

import pytest
from docs_pages import BIN, DOCS, Terminal, blocks, commands, replaced, section
from fakes.page_examples import missing_lines
from fakes.programs import require
from fakes.scenes import WORKER
from fakes.servers import free_port

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


def test_from_a_configuration_to_an_alert_and_its_end(terminal, tmp_path, own_influxdb, wait_until):
    require("curl")
    assert sum(map(len, STEPS.values())) == len(commands(TUTORIAL)), "a command is in no step"
    ports = {"8086": own_influxdb.port, "9377": free_port()}
    config = blocks(TUTORIAL, "toml")["costprobe.toml"]
    # The README's first step, which is the tutorial's too, is tested with a real model.
    shorter = {
        "batch = 1\n": f'batch = 1\nenergy = false\npython = "{WORKER}"\n',
        'database = "costprobe"\n': 'database = "costprobe"\nflush_every = "500ms"\n',
        "[store]\n": '[alerting]\nevaluate_every = "500ms"\n[store]\n',
    }
    (tmp_path / "costprobe.toml").write_text(replaced(config, {**ports, **shorter}))
    receiver = blocks(TUTORIAL, "python")["receiver.py"]
    (tmp_path / "receiver.py").write_text(replaced(receiver, {"9377": ports["9377"]}))

    printed = []

    def type_all(step, first=0, last=None):
        lines = [line.replace(".venv/bin/", f"{BIN}/") for line in STEPS[step][first:last]]
        outputs = [terminal.type(line.replace(":8086", f":{ports['8086']}")) for line in lines]
        printed.extend(outputs)
        return outputs

    checked, shown, made = type_all("A configuration")
    assert "costprobe.toml: good" in checked
    assert "would create: database costprobe" in shown
    assert "created: database costprobe" in made

    type_all("A receiver for alerts", 0, 2)
    terminal.until("costprobe.log", "store: ")
    wait_until((tmp_path / "control.sock").exists)
    assert "me: sent" in type_all("A receiver for alerts", 2, 3)[0]
    terminal.until("received.txt", "This is a test")
    assert "firing info test" in type_all("A receiver for alerts", 3)[0]

    terminal.until("received.txt", "firing warning too-slow")
    log, fires, received = type_all("The alert", 0, 3)
    assert "per million" in log
    assert "FIRING warning  too-slow" in fires
    assert "above 0.001" in received
    assert "good" in "".join(type_all("The alert", 3, 6))
    terminal.until("costprobe.log", "reloaded")
    terminal.until("received.txt", "resolved warning too-slow")
    output, history = type_all("The alert", 6)
    assert output.count("too-slow") == 2
    assert "too-slow" in history

    wait_until(lambda: '"values":[[' in type_all("The series", 0, 1)[0])
    wait_until(lambda: "idle" in type_all("The series", 1, 2)[0])
    sink, rows, price = type_all("The series", 1)
    assert "influxdb" in sink
    assert "cost_per_inference" in rows
    assert "$2.50/h" in price

    terminal.type("set +e")
    type_all("Clean up", 0, 2)
    terminal.type("wait")
    (tmp_path / "state" / "costprobe").mkdir(parents=True)
    type_all("Clean up", 2)
    assert {path.name for path in tmp_path.iterdir()} <= {"influxdb", "state"}
    assert not list((tmp_path / "state").iterdir())
    query = f"curl -sG http://127.0.0.1:{ports['8086']}/query --data-urlencode 'q=SHOW DATABASES'"
    assert "costprobe" not in terminal.type(query)
    assert missing_lines("tutorial.md", "".join(printed)) == []
