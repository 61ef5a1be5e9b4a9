"""Removal of secrets and control characters from every text that enters messages, rows and logs.

One redactor holds every secret that this process has read. A secret is read from its file here:
no error contains it, and no text shows it from then on.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from costprobe.core.outside import UnusableInputError, decoded_text, one_line, read_regular

MASK: Final = "[redacted]"
WITHHELD: Final = "(withheld: it contains a secret)"
# Shorter strings occur in ordinary text by chance.
MIN_SECRET_CHARS: Final = 6
MIN_COMPACT_CHARS: Final = 8
MIN_WORD_CHARS: Final = 3
SECRETS_MAX: Final = 1000
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
_URL_SAFE: Final = str.maketrans("+/", "-_")
_URL_PLACE: Final = re.compile(r"[^/?#]*")
_HOST_SCHEMES: Final = frozenset(
    f"{scheme}{tls}" for scheme in ("http", "json", "xml", "form", "mailto") for tls in ("", "s")
)
# Shorter words, such as "webhook" and "services", occur in texts by chance.
_PLAIN_WORD: Final = re.compile(r"[a-z]{1,11}")
_URL_PARTS: Final = re.compile(r"[/?&=:@#,;]+")
_WORD: Final = re.compile(r"[^\s\"'=:,;(){}\[\]<>&]+")
_ESCAPE: Final = re.compile(r"[\\%&+]")
_SIMPLE_CODE: Final = re.compile(r"\\[abfnrtv0\"'/\\]")
_CODE: Final = re.compile(r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})")
_NAME: Final = (
    r"\b([\w.-]{0,32}(?:token|secrets?|passw(?:or)?ds?|passphrase|api[_-]?key"
    r"|access[_-]?key|private[_-]?key|signature)|sig|pwd)([\"']?\s{0,3}"
)
# The location of a secret in the configuration: token = "file:/etc/costprobe/token".
_NO_PLACE: Final = r"(?![\"']?(?:file:/|credential:))"
_QUOTED: Final = r"\"[^\"\n]{1,4096}\"|'[^'\n]{1,4096}'"
_BARE: Final = r"[^\s&,;\"'}]{1,4096}"
# Each with what a text must contain to match, which is found much faster.
_PATTERNS: Final = (
    # The user of a URL: scheme://user:password@host
    (
        "://",
        re.compile(r"([a-z][a-z0-9+.-]{0,30}://)[^\s/?#@\"'<>]{1,500}@", re.IGNORECASE),
        rf"\1{MASK}@",
    ),
    # A header or an argument: Authorization: Bearer x, Token x, Basic x
    (
        "",
        re.compile(
            r"\b((?:proxy-)?authorization[\"']?\s*[:=]\s*[\"']?)(?:(?:bearer|basic|token|digest)\s+)?"
            r"[^\s,;\"']{1,4096}",
            re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    (
        "",
        re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{8,4096}", re.IGNORECASE),
        rf"\1 {MASK}",
    ),
    # name=value, in queries, environments and arguments
    (
        "=",
        re.compile(rf"{_NAME}=\s{{0,3}}){_NO_PLACE}(?:{_QUOTED}|{_BARE})", re.IGNORECASE),
        rf"\1\2{MASK}",
    ),
    # "name": "value", and name: value unless the value is a word, as in "x.token: cannot be read"
    (
        ":",
        re.compile(
            rf"{_NAME}:\s{{0,3}}){_NO_PLACE}(?:{_QUOTED}|(?=[^\s\"',;]{{0,99}}\d)[^\s&,;\"'}}]{{6,4096}})",
            re.IGNORECASE,
        ),
        rf"\1\2{MASK}",
    ),
    # Prefixes of well-known tokens: GitHub, Slack, AWS, OpenAI, Hugging Face, JWT
    (
        "",
        re.compile(
            r"\b(?:gh[pousr]_\w{20,255}|xox[abprs]-[\w-]{10,255}|AKIA[0-9A-Z]{16}"
            r"|sk-[\w-]{20,255}|hf_\w{20,255}|eyJ[\w-]{10,2000}\.[\w-]{4,2000}\.[\w-]{4,2000})"
        ),
        MASK,
    ),
    (
        "-----BEGIN",
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
            re.DOTALL,
        ),
        MASK,
    ),
)
MAX_SECRET_BYTES = 16 * 1024


class Redactor:
    """Masks known secrets, and text that matches the patterns of secrets; thread-safe.

    Args:
        secrets: Known secrets.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._lock = Lock()
        # By secret, the most recently read last.
        self._known: dict[str, _Known] = {}
        self._forms: tuple[str, ...] = ()
        self.learn(*secrets)

    def learn(self, *secrets: str) -> None:
        """Mask further secrets; also those of a URL, if one is a URL.

        Beyond SECRETS_MAX the ones that were not learned again for the longest time are forgotten.
        """
        parts = {part for secret in secrets for part in (secret, *_parts_of_url(secret))}
        with self._lock:
            is_new = not parts <= self._known.keys()
            for secret in sorted(parts - {""}):
                known = self._known.pop(secret) if secret in self._known else _Known.of(secret)
                self._known[secret] = known
            while len(self._known) > SECRETS_MAX:
                del self._known[next(iter(self._known))]
            if is_new:
                forms = {form for known in self._known.values() for form in known.forms}
                # Longest first: one may be a part of another.
                self._forms = tuple(sorted(forms, key=len, reverse=True))

    def forget(self) -> None:
        """Forget all secrets."""
        with self._lock:
            self._known.clear()
            self._forms = ()

    def __call__(self, text: str) -> str:
        """Return a text with secrets masked, in any case and in usual encodings."""
        lowered = text.lower()
        for form in self._forms:
            if form in lowered:
                text = re.sub(re.escape(form), MASK, text, flags=re.IGNORECASE)
                lowered = text.lower()
        for needle, pattern, instead in _PATTERNS:
            if needle in text:
                text = pattern.sub(instead, text)
        return text

    def from_outside(self, text: str) -> str:
        """Return a text that a server, module or command chose, with secrets masked.

        Such a text may hide a secret: it is withheld as a whole if it contains one that is split,
        encoded twice, or too short to be masked.
        """
        masked = self(text)
        with self._lock:
            known = tuple(self._known.values())
        if not known:
            return masked
        compact = [_compact(view) for view in _decoded_views(masked)]
        words = {word for view in _decoded_views(masked) for word in _WORD.findall(view.lower())}
        for secret in known:
            if secret.compact and any(secret.compact in view for view in compact):
                return WITHHELD
            if secret.word and secret.word in words:
                return WITHHELD
        return masked


class _Known(NamedTuple):
    """A secret in the forms that are searched for; all in lower case.

    Attributes:
        forms: As text, and as it is encoded in JSON, URLs, line protocol, base64 and hexadecimal.
        compact: Its letters and digits; empty if other texts may contain them by chance.
        word: A short secret, which is searched as a whole word; otherwise empty.
    """

    forms: frozenset[str]
    compact: str
    word: str

    @classmethod
    def of(cls, secret: str) -> _Known:
        bare, compact = secret.strip(), _compact(secret)
        is_random = len(compact) >= MIN_COMPACT_CHARS and not compact.isalpha()
        return cls(
            frozenset(form.lower() for form in _written_forms(secret) if _is_long(form)),
            compact if is_random else "",
            bare.lower() if MIN_WORD_CHARS <= len(bare) < MIN_SECRET_CHARS else "",
        )


REDACTOR: Final = Redactor()
"""The redactor of this process: it learns every secret that is read, from `read_secret`."""


def _is_long(form: str) -> bool:
    return len(form) >= MIN_SECRET_CHARS


def _written_forms(secret: str) -> set[str]:
    """Return a secret as text, and as it is usually encoded."""
    import html  # noqa: PLC0415 - its table of entities takes memory, and most hosts have no secret

    forms: set[str] = set()
    for form in {secret, secret.strip()} - {""}:
        forms |= {form, json.dumps(form)[1:-1], quote(form, safe=""), quote(form), quote_plus(form)}
        forms |= {repr(form)[1:-1], html.escape(form), _ESCAPED_IN_LINES.sub(r"\\\g<0>", form)}
        if _is_long(form):
            forms |= {form.encode().hex(), *_base64_forms(form.encode())}
    return forms


def _base64_forms(content: bytes) -> Iterator[str]:
    """Yield the characters of base64 that depend on nothing but the content, wherever it begins."""
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + content).decode().rstrip("=")
        # The first and last characters depend on neighbouring bytes, too.
        middle = coded[(0, 2, 3)[before] : len(coded) - 1]
        if len(middle) >= MIN_COMPACT_CHARS:
            yield middle
            yield middle.translate(_URL_SAFE)


def _parts_of_url(secret: str) -> Iterator[str]:
    """Yield the password of a URL that is a secret, and the parts of its user, path and query.

    The host is a token in Apprise's URLs of services, such as slack://TOKEN/TOKEN/TOKEN.
    """
    scheme, is_url, after_scheme = secret.partition("://")
    if not is_url:
        return
    place = _URL_PLACE.match(after_scheme)
    user, _, host = (place[0] if place else after_scheme).rpartition("@")
    name, _, password = user.partition(":")
    yield unquote(password)
    after_scheme = after_scheme[len(place[0]) if place else 0 :]
    if scheme not in _HOST_SCHEMES and "." not in host:
        after_scheme = f"{host}/{after_scheme}"
    for part in (name, *_URL_PARTS.split(after_scheme)):
        if _is_long(part) and not _PLAIN_WORD.fullmatch(part):
            yield from (part, unquote(part))


def _decoded_views(text: str) -> Iterator[str]:
    """Yield a text as it is, and with the escapes of JSON, URLs and HTML decoded up to twice."""
    import html  # noqa: PLC0415 - its table of entities takes memory

    yield text
    for _ in range(2):
        if not _ESCAPE.search(text):
            return
        text = _CODE.sub(lambda match: chr(int(match[1] or match[2], 16)), html.unescape(text))
        text = _SIMPLE_CODE.sub(" ", unquote_plus(text))
        yield text


def _compact(text: str) -> str:
    return "".join(mark for mark in text.lower() if mark.isalnum())


def secrets_of(environ: Mapping[str, str]) -> list[str]:
    """Return the values of environment variables that are secret by their names."""
    return [
        value
        for name, value in environ.items()
        if len(value) >= MIN_VARIABLE_CHARS
        and _SECRET_VARIABLE.search(name)
        and not _PLACE_VARIABLE.search(name)
    ]


def outside_text(text: str, chars_max: int | None = None) -> str:
    """Return a text from a server, a module or a command: without secrets, on one printable line.

    Args:
        text: The text.
        chars_max: Its longest length after that; None for any.
    """
    return one_line(REDACTOR.from_outside(text))[:chars_max]


def outside_document(document: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a JSON value whose texts passed `outside_text`; its keys are unchanged."""
    if isinstance(document, str):
        return outside_text(document)
    if isinstance(document, dict):
        return {name: outside_document(value) for name, value in document.items()}
    if isinstance(document, list):
        return [outside_document(value) for value in document]
    return document


def read_secret(path: Path, purpose: str) -> str:
    """Read a secret, without surrounding white space; the redactor masks it from then on.

    Args:
        path: The file.
        purpose: Its name in messages: "token", "password", "URL".

    Raises:
        ValueError: It cannot be read, or is not one line of printable text; the message names the
            file and never contains its content.
    """
    try:
        secret = decoded_text(read_regular(path, MAX_SECRET_BYTES + 1), MAX_SECRET_BYTES).strip()
    except OSError as error:
        raise ValueError(
            f"{path}: cannot be read ({error.strerror}); write the {purpose} into it, for this user"
        ) from error
    except UnusableInputError as error:
        raise ValueError(f"{path}: contains no {purpose}: it {error}") from None
    if not secret:
        raise ValueError(f"{path}: is empty; write the {purpose} into it")
    if not secret.isprintable():
        # It is not valid in a header, and the HTTP library's error would contain it.
        raise ValueError(f"{path}: contains more than one line, or unprintable characters")
    REDACTOR.learn(secret)
    return secret
