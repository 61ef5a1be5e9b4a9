"""The server to probe: address, trusted certificates and bearer token."""

from __future__ import annotations

import base64
import html
import re
import ssl
import urllib.parse
from dataclasses import dataclass, field

from costprobe_probes.errors import ProbeConfigError
from costprobe_probes.regular_file import open_regular

PORTS = {"http": 80, "https": 443}
# Shorter than the excerpt of a response, so that an echoed token is always found and removed.
MAX_TOKEN_CHARS = 2048
MAX_EXCERPT_CHARS = 200
MIN_BASE64_CHARS = 4
_CODE = re.compile(r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})")
_SIMPLE_CODE = re.compile(r"\\[abfnrtv0\"'/\\]")
_URL_SAFE = str.maketrans("-_", "+/")
_FIRST_PRINTABLE, _LAST_PRINTABLE = "!", "~"


@dataclass(frozen=True)
class ServerTarget:
    """A server to probe.

    Attributes:
        host: Name or address.
        port: TCP port.
        path: The URL's path without a slash at its end.
        context: TLS settings; None for plain HTTP.
        token: Bearer token; None to send none.
    """

    host: str
    port: int
    path: str
    context: ssl.SSLContext | None
    token: str | None = field(repr=False)

    @property
    def name(self) -> str:
        """Host and port, as text."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def host_header(self) -> str:
        """The Host header: without the default port of the scheme."""
        usual = PORTS["http" if self.context is None else "https"]
        return self.name.rpartition(":")[0] if self.port == usual else self.name

    def excerpt(self, text: str) -> str:
        """Return a short single line of a server's text, with the bearer token removed.

        Nothing of a text is shown that contains the token split, escaped or encoded.
        """
        if self.token is not None:
            text = text.replace(self.token, "***")
            if repeats(text, self.token):
                return "(the text contains the token and is not shown)"
        printable = "".join(c if c.isprintable() else " " for c in text[:MAX_EXCERPT_CHARS])
        return " ".join(printable.split())


def repeats(text: str, secret: str) -> bool:
    """Return whether a text contains a secret: in any case, split, escaped, or in base64.

    The daemon masks the secrets that it knows; here the text is not yet truncated.
    """
    views, wanted = [text], _compact(secret)
    for _ in range(2):
        codes = _CODE.sub(lambda match: chr(int(match[1] or match[2], 16)), html.unescape(text))
        text = _SIMPLE_CODE.sub(" ", urllib.parse.unquote_plus(codes))
        views.append(text)
    plain = any(wanted in _compact(view) for view in views)
    joined = "".join(views[-1].translate(_URL_SAFE).split())
    return plain or any(form in joined for form in _base64_forms(secret.encode()))


def _compact(text: str) -> str:
    marks = "".join(mark for mark in text.lower() if mark.isalnum())
    # A token without letters and digits is searched as it is.
    return marks or text


def _base64_forms(content: bytes) -> list[str]:
    """The characters of base64 that depend on nothing but the content, wherever it begins."""
    coded = [base64.b64encode(b"\0" * before + content).decode().rstrip("=") for before in range(3)]
    middles = [text[(0, 2, 3)[before] : -1] for before, text in enumerate(coded)]
    return [middle for middle in middles if len(middle) >= MIN_BASE64_CHARS]


def parse_target(url: str, ca_file: str | None, token_file: str | None) -> ServerTarget:
    """Parse the address of a server and read its files.

    Args:
        url: http:// or https://, host, port, and the base path of its API.
        ca_file: Certificates to trust instead of the system's.
        token_file: File with a bearer token.

    Raises:
        ProbeConfigError: The URL is malformed, or a file cannot be used.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        raise ProbeConfigError("url is malformed: set it to http://HOST:PORT") from None
    if scheme not in PORTS or not host:
        raise ProbeConfigError("url must be http://HOST:PORT or https://HOST:PORT")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ProbeConfigError(
            "url must not have a user, query or fragment: set token_file for a token"
        )
    if not _is_plain(host) or not _is_plain(parts.path or "/"):
        raise ProbeConfigError("url must be printable ASCII without spaces")
    context = _tls_context(ca_file) if scheme == "https" else None
    token = None if token_file is None else _read_token(token_file)
    return ServerTarget(host, port or PORTS[scheme], parts.path.rstrip("/"), context, token)


def _tls_context(ca_file: str | None) -> ssl.SSLContext:
    try:
        if ca_file is not None:
            open_regular(ca_file).close()
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        reason = "contains no certificates" if isinstance(error, ssl.SSLError) else error.strerror
        raise ProbeConfigError(f"ca_file {ca_file}: cannot be used ({reason})") from None


def _read_token(path: str) -> str:
    try:
        with open_regular(path) as file:
            content = file.read(MAX_TOKEN_CHARS + 3)
    except OSError as error:
        raise ProbeConfigError(f"token_file {path}: cannot be read ({error.strerror})") from None
    # A library would quote a token that is not a valid header in its error.
    token = content.decode("latin-1").rstrip("\r\n")
    if not token or len(token) > MAX_TOKEN_CHARS or not _is_plain(token):
        raise ProbeConfigError(f"token_file {path}: must contain a token of one line of ASCII")
    return token


def _is_plain(text: str) -> bool:
    return all(_FIRST_PRINTABLE <= c <= _LAST_PRINTABLE for c in text)
