"""The errors of an invalid configuration contain no part of a secret."""

import pytest
from fakes.cases import check_all
from fakes.command import called

CANARY = "canary-3b9d"
WEBHOOK = '[[notifier]]\nname = "n"\nkind = "webhook"\n'
V1 = '[[sink]]\napi = "v1"\ndatabase = "d"\n'
CHAT = '[[probe]]\nname = "p"\nkind = "openai"\nmodel = "m"\n'
SPOT = '[[price]]\nplan = "spot"\n'
# Configuration files with secrets in wrong places.
FILES = [
    V1 + f'url = "http://me:{CANARY}@h:8086"\n',
    V1 + f'url = "http://h:8086/?token={CANARY}"\n',
    WEBHOOK + f'url = "https://me:{CANARY}@h/x"\n',
    CHAT + f'url = "http://{CANARY}@h/v1"\n',
    CHAT + f'url = "http://h/v1?key={CANARY}"\n',
    SPOT + f'url = "http://me:{CANARY}@h/"\n',
    V1 + f'url = "http://h"\ntoken = "{CANARY}"\n',
    V1 + f'url = "http://h"\nuser = "u"\npassword = "{CANARY}"\n',
    WEBHOOK + f'url = "http://h"\ntoken = "{CANARY}"\n',
    f'[[notifier]]\nname = "n"\nkind = "apprise"\nurl = "x://{CANARY}"\n',
    f'[[notifier]]\nname = "n"\nkind = "{CANARY}"\n',
    WEBHOOK + f'url = "credential:{CANARY}/../x y"\n',
    V1 + f'url = "http://h"\nuser = ["{CANARY}"]\n',
    # TOML that cannot be parsed.
    V1 + f"url = {CANARY}\n",
    V1 + f'url = "{CANARY}\n',
    V1 + f'url = "http://h" {CANARY}\n',
]
# Secrets whose files cannot be used.
CONTENTS = [
    f"{CANARY}\n{CANARY}\n".encode(),
    CANARY.encode() + b"\xff\xfe",
    CANARY.encode() + b"\x1b[2J",
    CANARY.encode() * 2000,
    (CANARY + "é").encode(),
    b"",
]
USERS = [
    V1 + 'url = "http://127.0.0.1:9"\nuser = "u"\npassword = "file:{file}"\n',
    '[[sink]]\napi = "v2"\nbucket = "b"\nurl = "http://127.0.0.1:9"\ntoken = "file:{file}"\n',
    WEBHOOK + 'url = "file:{file}"\n',
    WEBHOOK + 'url = "http://127.0.0.1:9"\ntoken = "file:{file}"\n',
    '[[notifier]]\nname = "n"\nkind = "apprise"\nurl = "file:{file}"\n',
]


def output_of(tmp_path, text, *arguments):
    config = tmp_path / "costprobe.toml"
    config.write_text(text)
    done = called(config, *arguments, code=None)
    assert "Traceback" not in done.output
    return done.exit_code, done.output


def test_error_of_a_configuration_does_not_contain_its_secret(tmp_path):
    def is_silent(text):
        code, words = output_of(tmp_path, text, "config", "check")
        assert code == 2
        assert words
        assert CANARY not in words

    check_all(is_silent, FILES)


@pytest.mark.processes
def test_invalid_secret_is_named_by_its_file(tmp_path):
    file = tmp_path / "secret"
    text = '[telemetry]\ngpus = false\ncpu = false\n[store]\npath = "' + f'{tmp_path}/s.db"\n'
    for number, user in enumerate(USERS):
        section = user.replace("{file}", str(file)).replace('name = "n"', f'name = "n{number}"')
        text += section.replace("[[sink]]", f'[[sink]]\nname = "s{number}"')

    def is_named(content):
        file.write_bytes(content)
        _, words = output_of(tmp_path, text, "doctor")
        assert CANARY not in words
        assert words.count(str(file)) >= len(USERS)

    check_all(is_named, CONTENTS)
