"""The server to probe: where it is, whom it is trusted as, and what it lets us in for."""

from __future__ import annotations

import ssl
import urllib.parse
from dataclasses import dataclass, field

from probes.errors import ConfigError

PORTS = {"http": 80, "https": 443}
# A token that the server repeats is found in what is kept of its answer, which is longer.
MAX_TOKEN_CHARS = 2048
MAX_WORDS_CHARS = 200
_FIRST_PRINTABLE, _LAST_PRINTABLE = "!", "~"


@dataclass(frozen=True)
class Target:
    """A server.

    Attributes:
        host: Name or address.
        port: TCP port.
        path: The URL's path without a slash at its end.
        context: What TLS trusts; None for plain HTTP.
        token: Sent as bearer token; None to send none.
    """

    host: str
    port: int
    path: str
    context: ssl.SSLContext | None
    token: str | None = field(repr=False)

    @property
    def name(self) -> str:
        """Host and port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def host_header(self) -> str:
        """The host as HTTP names it, without the scheme's own port."""
        usual = PORTS["http" if self.context is None else "https"]
        return self.name.rpartition(":")[0] if self.port == usual else self.name

    def words(self, text: str) -> str:
        """What a server said, short and in one line, without the token that it may repeat."""
        if self.token is not None:
            text = text.replace(self.token, "***")
        printable = "".join(c if c.isprintable() else " " for c in text[:MAX_WORDS_CHARS])
        return " ".join(printable.split())


def target(url: str, ca_file: str | None, token_path: str | None) -> Target:
    """The server at a URL.

    Args:
        url: http:// or https://, host, port, and the path that its API lies under.
        ca_file: Certificates to trust instead of the system's.
        token_path: File with a bearer token.

    Raises:
        ConfigError: The URL is none, or a file cannot be used.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        raise ConfigError("url is none: set it to http://HOST:PORT") from None
    if scheme not in PORTS or not host:
        raise ConfigError("url must be http://HOST:PORT or https://HOST:PORT")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ConfigError("url may have no user, query or fragment: set token_path for a token")
    if not _is_plain(host) or not _is_plain(parts.path or "/"):
        raise ConfigError("url may have no spaces and no letters beyond ASCII")
    context = _trusted(ca_file) if scheme == "https" else None
    token = None if token_path is None else _token(token_path)
    return Target(host, port or PORTS[scheme], parts.path.rstrip("/"), context, token)


def _trusted(ca_file: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        words = "no certificates in it" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(f"ca_file {ca_file}: cannot be used ({words})") from None


def _token(path: str) -> str:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - one small read
            content = file.read(MAX_TOKEN_CHARS + 3)
    except OSError as error:
        raise ConfigError(f"token_path {path}: cannot be read ({error.strerror})") from None
    # A library would put a token that no header can hold into its error's text.
    token = content.decode("latin-1").rstrip("\r\n")
    if not token or len(token) > MAX_TOKEN_CHARS or not _is_plain(token):
        raise ConfigError(f"token_path {path}: must hold a token of one line, in ASCII")
    return token


def _is_plain(text: str) -> bool:
    return all(_FIRST_PRINTABLE <= c <= _LAST_PRINTABLE for c in text)
