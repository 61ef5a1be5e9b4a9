"""The destination of a request, and the parts of its URL that are secret."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, unquote, urlsplit

from costprobe.adapters.net.errors import Misconfigured
from costprobe.adapters.system.redaction import REDACTOR

_SCHEMES = {"http", "https"}
# Shorter parts of a secret URL, such as "api" and "v1", occur in responses by chance.
MIN_SECRET_PART_CHARS = 6


@dataclass(frozen=True, slots=True)
class Destination:
    """An http or https URL.

    Attributes:
        name: Its name in messages: the origin of the URL, or the location of a secret URL; empty if
            the caller adds the name.
        url: The URL.
        is_tls: True for https.
        secrets: Parts of the URL that no message may contain.
    """

    name: str
    url: str = field(repr=False)
    is_tls: bool
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def message(self, text: str) -> str:
        """Return a message with the name of the destination as prefix."""
        return f"{self.name}: {text}" if self.name else text

    def unnamed(self) -> Destination:
        """Return the destination without a name, for callers that add the name themselves."""
        return replace(self, name="")

    @classmethod
    def parse(cls, url: str, secret_place: str | None = None) -> Destination:
        """Check a URL.

        Args:
            url: The URL.
            secret_place: Location of a secret URL; None if the URL may be shown.

        Raises:
            Misconfigured: It is not http or https, contains a user or a character outside
                printable ASCII, or has no valid host and port.
        """
        invalid = Misconfigured(
            f"{secret_place or 'url'}: not a valid http or https URL (without a user, and with"
            " characters outside ASCII percent-encoded)"
        )
        try:
            parts = urlsplit(url)
            port = parts.port
            (parts.hostname or "").encode("idna")
        except ValueError:
            # Without the cause: its text would contain the URL.
            raise invalid from None
        is_printable = url.isascii() and url.isprintable() and " " not in url
        is_http = parts.scheme in _SCHEMES and parts.hostname and "@" not in parts.netloc
        if not is_printable or not is_http or port == 0:
            raise invalid
        secrets: tuple[str, ...] = ()
        if secret_place is not None:
            pieces = [*parts.path.split("/"), *(value for _, value in parse_qsl(parts.query))]
            long = (piece for piece in pieces if len(piece) >= MIN_SECRET_PART_CHARS)
            secrets = tuple({form for piece in long for form in (piece, unquote(piece))})
            REDACTOR.learn(*secrets)
        name = secret_place or f"{parts.scheme}://{parts.netloc}"
        return cls(name, url, parts.scheme == "https", secrets)


def is_loopback(url: str) -> bool:
    """Return whether a URL's host is this one, where compression costs more than copying."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
