"""Removing secrets from text that leaves the process: logs and support bundles."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote

MASK: Final = "[redacted]"
# Shorter strings occur in ordinary text by chance.
MIN_SECRET_CHARS: Final = 6
# Such variables may also be "disabled" and the like.
MIN_VARIABLE_CHARS: Final = 9
_SECRET_VARIABLE: Final = re.compile(
    r"token|secret|passw|passphrase|credential|api_?key|access_?key|private_?key|cookie"
    r"|(^|_)(auth|key|pw|pwd|pat|dsn)(_|$)",
    re.IGNORECASE,
)
# PWD, the working folder, matches the pattern of a password.
_PLACE_VARIABLE: Final = re.compile(r"_(file|dir|directory|path|sock|home)$|^pwd$", re.IGNORECASE)
_ESCAPED_IN_LINES: Final = re.compile(r'[ ,="\\]')
_NAME: Final = (
    r"\b([\w.-]{0,32}(?:token|secrets?|passw(?:or)?ds?|passphrase|api[_-]?key"
    r"|access[_-]?key|private[_-]?key|signature)|sig|pwd)([\"']?\s{0,3}"
)
_QUOTED: Final = r"\"[^\"\n]{1,4096}\"|'[^'\n]{1,4096}'"
_BARE: Final = r"[^\s&,;\"'}]{1,4096}"
_PATTERNS: Final = (
    # The user of a URL: scheme://user:password@host
    (
        re.compile(r"([a-z][a-z0-9+.-]{0,30}://)[^\s/?#@\"'<>]{1,500}@", re.IGNORECASE),
        rf"\1{MASK}@",
    ),
    # A header or an argument: Authorization: Bearer x, Token x, Basic x
    (
        re.compile(
            r"\b((?:proxy-)?authorization[\"']?\s*[:=]\s*[\"']?)(?:(?:bearer|basic|token|digest)\s+)?"
            r"[^\s,;\"']{1,4096}",
            re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    (re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{8,4096}", re.IGNORECASE), rf"\1 {MASK}"),
    # name=value, in queries, environments and arguments
    (re.compile(rf"{_NAME}=\s{{0,3}})(?:{_QUOTED}|{_BARE})", re.IGNORECASE), rf"\1\2{MASK}"),
    # "name": "value", and name: value unless the value is a word, as in "x.token: cannot be read"
    (
        re.compile(
            rf"{_NAME}:\s{{0,3}})(?:{_QUOTED}|(?=[^\s\"',;]{{0,99}}\d)[^\s&,;\"'}}]{{6,4096}})",
            re.IGNORECASE,
        ),
        rf"\1\2{MASK}",
    ),
    # Prefixes of well-known tokens: GitHub, Slack, AWS, OpenAI, Hugging Face, JWT
    (
        re.compile(
            r"\b(?:gh[pousr]_\w{20,255}|xox[abprs]-[\w-]{10,255}|AKIA[0-9A-Z]{16}"
            r"|sk-[\w-]{20,255}|hf_\w{20,255}|eyJ[\w-]{10,2000}\.[\w-]{4,2000}\.[\w-]{4,2000})"
        ),
        MASK,
    ),
    (
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
            re.DOTALL,
        ),
        MASK,
    ),
)


class Redactor:
    """Masks known secrets, and text that matches the patterns of secrets.

    Args:
        secrets: Known secrets; those shorter than MIN_SECRET_CHARS are left to the patterns.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets for form in _written_forms(secret)}
        # Longest first: one may be a part of another.
        self._secrets = sorted(
            (form for form in forms if len(form) >= MIN_SECRET_CHARS), key=len, reverse=True
        )

    def __call__(self, text: str) -> str:
        """Return a text with secrets masked."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        return text


def _written_forms(secret: str) -> set[str]:
    """Return a secret as text, and as it is encoded in JSON, in a URL, and in line protocol."""
    forms: set[str] = set()
    for form in {secret, secret.strip()} - {""}:
        forms |= {form, json.dumps(form)[1:-1], quote(form, safe=""), quote(form)}
        forms.add(_ESCAPED_IN_LINES.sub(r"\\\g<0>", form))
    return forms


def secrets_of(environ: Mapping[str, str]) -> list[str]:
    """Return the values of environment variables that are secret by their names."""
    return [
        value
        for name, value in environ.items()
        if len(value) >= MIN_VARIABLE_CHARS
        and _SECRET_VARIABLE.search(name)
        and not _PLACE_VARIABLE.search(name)
    ]
