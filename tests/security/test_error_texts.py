"""The errors of an invalid configuration contain no part of a secret."""

import pytest
from fakes.command import called

CANARY = "canary-3b9d"
WEBHOOK = '[[notifier]]\nname = "n"\nkind = "webhook"\n'
V1 = '[[sink]]\napi = "v1"\ndatabase = "d"\n'
CHAT = '[[probe]]\nname = "p"\nkind = "openai"\nmodel = "m"\n'
SPOT = '[[price]]\nplan = "spot"\n'
# Configuration files with secrets in wrong places.
FILES = {
    "a user in a sink's address": V1 + f'url = "http://me:{CANARY}@h:8086"\n',
    "a key in a sink's address": V1 + f'url = "http://h:8086/?token={CANARY}"\n',
    "a user in a webhook's address": WEBHOOK + f'url = "https://me:{CANARY}@h/x"\n',
    "a user in a probe's address": CHAT + f'url = "http://{CANARY}@h/v1"\n',
    "a key in a probe's address": CHAT + f'url = "http://h/v1?key={CANARY}"\n',
    "a user in a price's address": SPOT + f'url = "http://me:{CANARY}@h/"\n',
    "a token as a key": V1 + f'url = "http://h"\ntoken = "{CANARY}"\n',
    "a password as a key": V1 + f'url = "http://h"\nuser = "u"\npassword = "{CANARY}"\n',
    "a token as a credential": WEBHOOK + f'url = "http://h"\ntoken = "{CANARY}"\n',
    "an address of apprise": f'[[notifier]]\nname = "n"\nkind = "apprise"\nurl = "x://{CANARY}"\n',
    "a token where a kind belongs": f'[[notifier]]\nname = "n"\nkind = "{CANARY}"\n',
    "a token where a name belongs": WEBHOOK + f'url = "credential:{CANARY}/../x y"\n',
    "a token of two types": V1 + f'url = "http://h"\nuser = ["{CANARY}"]\n',
    "a token in a line without quotes": V1 + f"url = {CANARY}\n",
    "a token in a text without its end": V1 + f'url = "{CANARY}\n',
    "a token behind a value": V1 + f'url = "http://h" {CANARY}\n',
}
# Secrets whose files cannot be used.
CONTENTS = {
    "two lines": f"{CANARY}\n{CANARY}\n".encode(),
    "not text": CANARY.encode() + b"\xff\xfe",
    "an escape": CANARY.encode() + b"\x1b[2J",
    "too long": CANARY.encode() * 2000,
    "not ASCII": (CANARY + "é").encode(),
    "empty": b"",
}
USERS = {
    "sink": V1 + 'url = "http://127.0.0.1:9"\nuser = "u"\npassword = "file:{file}"\n',
    "sink of v2": '[[sink]]\napi = "v2"\nbucket = "b"\nurl = "http://127.0.0.1:9"\n'
    'token = "file:{file}"\n',
    "address": WEBHOOK + 'url = "file:{file}"\n',
    "token": WEBHOOK + 'url = "http://127.0.0.1:9"\ntoken = "file:{file}"\n',
    "apprise": '[[notifier]]\nname = "n"\nkind = "apprise"\nurl = "file:{file}"\n',
}


def output_of(tmp_path, text, *arguments):
    config = tmp_path / "costprobe.toml"
    config.write_text(text)
    done = called(config, *arguments, code=None)
    assert "Traceback" not in done.output
    return done.exit_code, done.output


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_error_of_a_configuration_does_not_contain_its_secret(tmp_path, text):
    code, words = output_of(tmp_path, text, "config", "check")
    assert code == 2
    assert words
    assert CANARY not in words


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.processes
def test_invalid_secret_is_named_by_its_file(tmp_path, content):
    file = tmp_path / "secret"
    file.write_bytes(content)
    text = '[telemetry]\ngpus = false\ncpu = false\n[store]\npath = "' + f'{tmp_path}/s.db"\n'
    for number, user in enumerate(USERS.values()):
        section = user.replace("{file}", str(file)).replace('name = "n"', f'name = "n{number}"')
        text += section.replace("[[sink]]", f'[[sink]]\nname = "s{number}"')
    _, words = output_of(tmp_path, text, "doctor")
    assert CANARY not in words
    assert str(file) in words
