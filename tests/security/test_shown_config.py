"""The printed configuration contains no secret and can be attached to a ticket."""

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
