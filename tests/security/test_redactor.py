"""The redactor finds secrets in every usual encoding, and leaves other texts alone."""

import base64
import html
import json
import re
import urllib.parse

from costprobe.adapters.host.redaction import (
    MASK,
    REDACTOR,
    SECRETS_MAX,
    Redactor,
    outside_document,
    outside_text,
)
from costprobe.adapters.http.access import Secret
from costprobe.adapters.http.errors import server_message
from fakes.cases import check_all

SECRET = "tok-3N/x+q'9=%Zp\"7k\\L"  # noqa: S105 - a canary
ENCODINGS = {
    "plain": str,
    "upper case": str.upper,
    "JSON": json.dumps,
    "JSON of Go": lambda text: json.dumps(text).replace("+", "\\u002b"),
    "JSON of PHP": lambda text: json.dumps(text).replace("/", "\\/"),
    "URL": urllib.parse.quote,
    "URL of a form": urllib.parse.quote_plus,
    "line protocol": lambda text: re.sub("[,= ]", r"\\\g<0>", text),
    "URL, twice": lambda text: urllib.parse.quote(urllib.parse.quote(text)),
    "HTML": html.escape,
    "XML": lambda text: html.escape(text).replace("&#x27;", "&apos;"),
    "HTML, all but letters": lambda text: re.sub(r"\W", lambda m: f"&#{ord(m[0])};", text),
    "HTML, each character": lambda text: "".join(f"&#x{ord(c):x};" for c in text),
    "URL, each character": lambda text: "".join(f"%{ord(c):02X}" for c in text),
    "JSON, each character": lambda text: "".join(f"\\u{ord(c):04x}" for c in text),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "basic": lambda text: base64.b64encode(f"user:{text}".encode()).decode(),
    "base64, URL-safe": lambda text: base64.urlsafe_b64encode(f"u:{text}".encode()).decode(),
    "hexadecimal": lambda text: text.encode().hex(),
}
# Half of the secret: no encoding of it may remain.
HALF = len(SECRET) // 2


def remains(text):
    parts = [SECRET[:HALF], SECRET[HALF:]]
    return [name for name, encode in ENCODINGS.items() if any(encode(p) in text for p in parts)]


def test_secret_is_found_in_every_encoding():
    redactor = Redactor([SECRET])

    def is_masked(encoding):
        text = f"server says: {ENCODINGS[encoding](SECRET)} is invalid"
        masked = redactor.from_outside(text)
        assert MASK in masked, masked
        assert not remains(masked), masked

    check_all(is_masked, ENCODINGS)


def test_ordinary_texts_are_unchanged():
    redactor = Redactor([SECRET, "a1b", "hunter2", "influxdb"])
    for text in (
        "HTTP 503: no leader",
        "an ordinary message of a server, 100 % of it",
        "laboratory a1bc at 100 % & more",
        "write to influx db failed\\n",
        "meta-llama/Llama-3.1-8B-Instruct",
        "C:\\users\\x",
    ):
        assert redactor.from_outside(text) == text


def test_short_secret_is_masked_as_a_word():
    redactor = Redactor(["a1b", "x"])
    assert redactor.from_outside('the word "A1B" refused') == f'the word "{MASK}" refused'
    assert redactor.from_outside("password=a1b") != "password=a1b"
    assert redactor.from_outside("x is too short to be a secret").startswith("x is")


def test_parts_of_a_secret_address_are_secrets():
    redactor = Redactor(
        ["slack://T1JJ3T3L2/A1BRTD4JD/services?key=Q9xkkk", "json://me:p%40w@h.example/x"]
    )
    for part in ("T1JJ3T3L2", "A1BRTD4JD", "Q9xkkk"):
        assert redactor.from_outside(f"at {part}") == f"at {MASK}"
    assert redactor.from_outside("refused p%40w") != "refused p%40w"
    assert redactor.from_outside("services of h.example and me") == "services of h.example and me"


def test_rotated_secret_is_known_from_its_first_read(tmp_path):
    file = tmp_path / "token"
    secret = Secret.of_file(file, "token")
    for value in ("first-9f3a", "second-77aa"):
        file.write_text(value)
        assert secret.read() == value
    body = b'{"error": "bad first-9f3a, second-77aa"}'
    assert server_message(body) == "(the response contains a secret and is not shown)"
    document = {"type": "error", "list": ["first-9f3a\n", 1, None, {"a": "second-77aa"}]}
    assert outside_document(document) == {
        "type": "error",
        "list": [MASK, 1, None, {"a": MASK}],
    }


def test_secret_is_masked_before_a_text_is_cut():
    REDACTOR.learn(SECRET)
    assert SECRET[:6] not in outside_text("x" * 50 + SECRET, 58)


def test_number_of_known_secrets_is_limited():
    redactor = Redactor(f"secret-{number:05d}" for number in range(SECRETS_MAX + 1))
    assert redactor("secret-00000") == "secret-00000"
    assert redactor("secret-00001") == MASK


def test_any_text_is_accepted_also_one_of_escapes_only():
    redactor = Redactor([SECRET, '\\\\\\\\"12345', "%%%%12345"])
    for text in ("", "%", "\\", "&#x110000;", "\\ud800", "%ff" * 500, "&" * 5000):
        redactor.from_outside(text)
    for flood in ("\\" * 30_000, "%25" * 10_000, '\\"' * 10_000):
        redactor.from_outside(flood + "12345")  # never ends unless each form is bounded
