"""Where a request goes, and what of it no message may hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from agent.notifying.sender import Misconfigured

PORTS = {"http": 80, "https": 443}
# Shorter parts of a secret address, such as "api" and "v1", are in many an answer by chance.
MIN_SECRET_PART_CHARS = 6


@dataclass(frozen=True, slots=True)
class Address:
    """An http or https address, taken apart.

    Attributes:
        name: What messages call it; never more than an operator wrote into the configuration.
        is_tls: True for https.
        host: Name or IP address.
        port: TCP port.
        target: Path and query.
        secrets: What no message may hold.
    """

    name: str
    is_tls: bool
    host: str = field(repr=False)
    port: int = field(repr=False)
    target: str = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, url: str, secret_place: str | None = None) -> Address:
        """Takes an address apart.

        Args:
            url: The address.
            secret_place: Where it was read, if it is a secret; None if it may be shown.

        Raises:
            Misconfigured: It is no such address.
        """
        wrong = Misconfigured(
            f"{secret_place or 'url'}: holds no http or https address (no user in it, and other"
            " than ASCII characters percent-encoded)"
        )
        try:
            parts = urlsplit(url)
            port = parts.port
            (parts.hostname or "").encode("idna")
        except ValueError:
            # Without the cause: its text would hold the address.
            raise wrong from None
        printable = url.isascii() and url.isprintable() and " " not in url
        if not printable or parts.scheme not in PORTS or not parts.hostname or "@" in parts.netloc:
            raise wrong
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        secrets: tuple[str, ...] = ()
        if secret_place is not None:
            pieces = [*parts.path.split("/"), *(value for _, value in parse_qsl(parts.query))]
            long = (piece for piece in pieces if len(piece) >= MIN_SECRET_PART_CHARS)
            secrets = tuple({form for piece in long for form in (piece, unquote(piece))})
        return cls(
            secret_place or f"{parts.scheme}://{parts.netloc}",
            parts.scheme == "https",
            parts.hostname,
            port or PORTS[parts.scheme],
            target,
            secrets,
        )
