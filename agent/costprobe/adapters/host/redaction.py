"""Removal of secrets and control characters from every text that enters messages, rows and logs.

One redactor holds every secret that this process has read. A secret is read from its file here:
no error contains it, and no text shows it from then on.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, Final
from urllib.parse import unquote

from costprobe.adapters.host.processes import is_secret_name
from costprobe.core.outside import UnusableInputError, decoded_text, one_line, read_regular

MASK: Final = "[redacted]"
# Shorter strings occur in ordinary text by chance.
MIN_SECRET_CHARS: Final = 6
MIN_COMPACT_CHARS: Final = 8
MIN_WORD_CHARS: Final = 3
SECRETS_MAX: Final = 1000
# Such variables may also be "disabled" and the like.
MIN_VARIABLE_CHARS: Final = 9
_PLACE_VARIABLE: Final = re.compile(r"_(file|dir|directory|path|sock|home)$", re.IGNORECASE)
_HOST_SCHEMES: Final = frozenset(
    f"{scheme}{tls}" for scheme in ("http", "json", "xml", "form", "mailto") for tls in ("", "s")
)
# Shorter words, such as "webhook" and "services", occur in texts by chance.
_PLAIN_WORD: Final = re.compile(r"[a-z]{1,11}")
_URL_PARTS: Final = re.compile(r"[/?&=:@#,;]+")
_LITERAL: Final = re.compile(r"[a-z0-9]+")
# What has a form of its own in a secret: letters and digits, backslashes, and each other character.
_MARKS: Final = re.compile(r"[a-zA-Z0-9]+|\\+|.", re.DOTALL)
_NAME: Final = (
    r"\b([\w.-]{0,32}(?:token|secrets?|passw(?:or)?ds?|passphrase|api[_-]?key"
    r"|access[_-]?key|private[_-]?key|signature)|sig|pwd)([\"']?\s{0,3}"
)
# The location of a secret in the configuration: token = "file:/etc/costprobe/token".
_NO_PLACE: Final = r"(?![\"']?(?:file:/|credential:))"
_QUOTED: Final = r"\"[^\"\n]{1,4096}\"|'[^'\n]{1,4096}'"
_BARE: Final = r"[^\s&,;\"'}]{1,4096}"
_PATTERNS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), instead)
    for pattern, instead in (
        # The user of a URL: scheme://user:password@host
        (r"([a-z][a-z0-9+.-]{0,30}://)[^\s/?#@\"'<>]{1,500}@", rf"\1{MASK}@"),
        # A header or an argument: Authorization: Bearer x, Token x, Basic x
        (
            (
                r"\b((?:proxy-)?authorization[\"']?\s*[:=]\s*[\"']?)"
                r"(?:(?:bearer|basic|token|digest)\s+)?[^\s,;\"']{1,4096}"
            ),
            rf"\1{MASK}",
        ),
        (r"\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{8,4096}", rf"\1 {MASK}"),
        # name=value, in queries, environments and arguments
        (rf"{_NAME}=\s{{0,3}}){_NO_PLACE}(?:{_QUOTED}|{_BARE})", rf"\1\2{MASK}"),
        # "name": "value", and name: value unless the value is a word, as in "x.token: cannot be read"
        (
            (
                rf"{_NAME}:\s{{0,3}}){_NO_PLACE}"
                rf"(?:{_QUOTED}|(?=[^\s\"',;]{{0,99}}\d)[^\s&,;\"'}}]{{6,4096}})"
            ),
            rf"\1\2{MASK}",
        ),
        # Prefixes of well-known tokens: GitHub, Slack, AWS, OpenAI, Hugging Face, JWT
        (
            (
                r"\b(?:gh[pousr]_\w{20,255}|xox[abprs]-[\w-]{10,255}|AKIA[0-9A-Z]{16}"
                r"|sk-[\w-]{20,255}|hf_\w{20,255}|eyJ[\w-]{10,2000}\.[\w-]{4,2000}\.[\w-]{4,2000})"
            ),
            MASK,
        ),
        (r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", MASK),
    )
)
MAX_SECRET_BYTES = 16 * 1024


class Redactor:
    """Masks known secrets, and text that matches the patterns of secrets; thread-safe.

    Args:
        secrets: Known secrets.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._lock = Lock()
        # By secret, the most recently read last: texts of which one is in every text with it.
        self._known: dict[str, tuple[str, ...]] = {}
        self.learn(*secrets)

    def learn(self, *secrets: str) -> None:
        """Mask further secrets; also those of a URL, if one is a URL.

        Beyond SECRETS_MAX the ones that were not learned again for the longest time are forgotten.
        """
        parts = {part.strip() for secret in secrets for part in (secret, *_parts_of_url(secret))}
        with self._lock:
            known = dict(self._known)
            for secret in sorted(part for part in parts if len(part) >= MIN_WORD_CHARS):
                known[secret] = known.pop(secret) if secret in known else _signs(secret)
            # Replaced, not changed: other threads iterate over it.
            self._known = dict(islice(known.items(), max(0, len(known) - SECRETS_MAX), None))

    def forget(self) -> None:
        """Forget all secrets."""
        self._known = {}

    def __call__(self, text: str, least_chars: int = MIN_SECRET_CHARS) -> str:
        """Return a text with secrets masked, in any case and in usual encodings.

        Args:
            text: The text.
            least_chars: Length of the shortest known secrets to mask; below MIN_SECRET_CHARS they are
                masked where they are a word.
        """
        for pattern in self._present(text, least_chars):
            text = pattern.sub(MASK, text)
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        return text

    def finds(self, text: str) -> bool:
        """Return whether a text contains a known secret."""
        return any(pattern.search(text) for pattern in self._present(text, MIN_WORD_CHARS))

    def from_outside(self, text: str) -> str:
        """Return a text that a server, module or command chose, also without secrets of one word."""
        return self(text, MIN_WORD_CHARS)

    def _present(self, text: str, least_chars: int) -> Iterator[re.Pattern[str]]:
        """Yield the patterns of the secrets that a text may contain, of the longest first."""
        lower = text.lower()
        for secret in sorted(self._known, key=len, reverse=True):
            if len(secret) >= least_chars and any(sign in lower for sign in self._known[secret]):
                yield _pattern(secret)


REDACTOR: Final = Redactor()
"""The redactor of this process: it learns every secret that is read, from `read_secret`."""


def _coded(secret: str) -> set[str]:
    """Return the forms in which letters and digits are encoded, too."""
    content, codes = secret.encode(), [ord(mark) for mark in secret]
    return {
        content.hex(),
        *_base64_forms(content),
        "".join(f"%{byte:02x}" for byte in content),
        "".join(f"&#{code};" for code in codes),
        "".join(f"&#x{code:x};" for code in codes),
        "".join(f"\\u{code:04x}" for code in codes),
    }


def _signs(secret: str) -> tuple[str, ...]:
    """Return texts of which one is in every text, in lower case, that contains a secret."""
    # Otherwise letters and digits are as they are.
    longest = max(_LITERAL.findall(secret.lower()), key=len, default="")
    return (longest, *(form.lower() for form in _coded(secret)))


@lru_cache(maxsize=16)
def _pattern(secret: str) -> re.Pattern[str]:
    """Return what matches a secret: its marks as they are or escaped, base64 and hexadecimal."""
    plain = "".join(_mark_form(found[0]) for found in _MARKS.finditer(secret))
    if len(secret) < MIN_SECRET_CHARS:
        return re.compile(rf"(?<![^\W_])(?:{plain})(?![^\W_])", re.IGNORECASE)
    return re.compile("|".join([plain, *map(re.escape, _coded(secret))]), re.IGNORECASE)


def _mark_form(mark: str) -> str:
    """Return a pattern of a character, escaped as in JSON, Python, URLs and HTML, also repeatedly.

    Each has bounds: a text of a server may consist of escapes only.
    """
    if _LITERAL.fullmatch(mark.lower()):
        return mark
    import html  # noqa: PLC0415 - its table of entities takes memory, and most hosts have no secret

    code, plain = ord(mark[0]), "[ +]" if mark in " +" else re.escape(mark)
    url = "".join(f"%(?:25){{0,4}}{byte:02x}" for byte in mark.encode())
    entity = f"&#(?:{code}|x0*{code:x});"
    if code == ord("\\"):
        return rf"(?:\\{{{len(mark)},64}}+|{url}|(?:{entity}){{{len(mark)}}})"
    entities = f"{re.escape(html.escape(mark))}|{entity}" + "|&apos;" * (mark == "'")
    return rf"(?:\\{{0,8}}+{plain}|\\{{1,8}}+(?:u{code:04x}|x{code:02x})|{url}|{entities})"


def _base64_forms(content: bytes) -> Iterator[str]:
    """Yield the characters of base64 that depend on nothing but the content, wherever it begins."""
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + content).decode().rstrip("=")
        # The first and last characters depend on neighbouring bytes, too.
        middle = coded[(0, 2, 3)[before] : len(coded) - 1]
        if len(middle) >= MIN_COMPACT_CHARS:
            yield from (middle, middle.replace("+", "-").replace("/", "_"))


def _parts_of_url(secret: str) -> Iterator[str]:
    """Yield the password of a URL that is a secret, and the parts of its user, path and query.

    The host is a token in Apprise's URLs of services, such as slack://TOKEN/TOKEN/TOKEN.
    """
    scheme, is_url, after_scheme = secret.partition("://")
    if not is_url:
        return
    place = re.split(r"[/?#]", after_scheme, maxsplit=1)[0]
    user, _, host = place.rpartition("@")
    yield unquote(user.partition(":")[2])
    is_token = scheme not in _HOST_SCHEMES and "." not in host
    parts = [user, after_scheme.removeprefix(place), host if is_token else ""]
    for part in _URL_PARTS.split("/".join(parts)):
        if len(part) >= MIN_SECRET_CHARS and not _PLAIN_WORD.fullmatch(part):
            yield from (part, unquote(part))


def secrets_of(environ: Mapping[str, str]) -> list[str]:
    """Return the values of environment variables that are secret by their names."""
    return [
        value
        for name, value in environ.items()
        if len(value) >= MIN_VARIABLE_CHARS
        and is_secret_name(name)
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
