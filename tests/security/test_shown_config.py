"""The printed configuration contains no secret and can be attached to a ticket."""

import tomllib
from decimal import Decimal
from pathlib import Path

from click.testing import CliRunner
from costprobe.configuration import load
from costprobe.core.config.load import as_toml_tables
from costprobe.ui.cli.main import main
from costprobe.ui.cli.support.config_sample import MASK, shown


def test_urls_are_shown_without_possible_keys():
    seen = {
        "http://h:8086": "http://h:8086",
        "https://h/path/x": "https://h/path/x",
        "https://h/p?key=canary&b=canary": "https://h/p?key=***&b=***",
        "https://h/p?empty=&b=canary#canary": "https://h/p?***&b=***#***",
        "https://h/p?canary": "https://h/p?***",
        "https://h/p?canary&x=1==": "https://h/p?***&x=***",
        "http://canary@h/p": "http://***@h/p",
        "http://me:canary@h/p": "http://***@h/p",
        "what? a=b": "what? a=b",
        "/etc/costprobe/token?x=1": "/etc/costprobe/token?x=1",
    }
    assert {value: shown(value, "url") for value in seen} == seen


def test_arguments_of_a_command_are_hidden_and_its_program_is_shown():
    tables = {"price": [{"command": ["/bin/price", "--key", "canary"], "per": 3}]}
    assert shown(tables) == {"price": [{"command": ["/bin/price", MASK, MASK], "per": 3}]}


CONFIG = """
[[price]]
plan = "spot"
device = "gpu0"
url = "https://prices/x?key=canary-1"
[[price]]
plan = "spot"
name = "two"
device = "gpu1"
command = ["/opt/price", "--key=canary-2"]
[[notifier]]
name = "hook"
kind = "webhook"
url = "https://hook/x?key=canary-3#canary-4"
key = "file:/etc/costprobe/hook.key"
[[notifier]]
name = "am"
kind = "alertmanager"
url = "https://am/d?token=canary-5"
"""


def test_config_show_hides_keys_and_names_secret_files(tmp_path):
    path = tmp_path / "costprobe.toml"
    path.write_text(CONFIG)
    done = CliRunner().invoke(main, ["-c", str(path), "config", "show"])
    assert done.exit_code == 0, done.output
    assert "canary" not in done.output
    assert 'key = "file:/etc/costprobe/hook.key"' in done.output
    # The output is a valid configuration with the same settings.
    again = tomllib.loads(done.output, parse_float=Decimal)
    own = as_toml_tables(load(Path(path)))
    assert again.keys() == own.keys()
    assert again["notifier"][0]["url"] == "https://hook/x?key=***#***"
