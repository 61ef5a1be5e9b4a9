"""Addresses, TLS, secrets and limits of HTTP clients: the configuration keys that they share.

A secret is in a file or a systemd credential, which the configuration names as "file:/PATH" or
"credential:NAME"; it is read when needed, and never shown; neither are the secret parts of a URL.
Further headers are those of a client's section, and a secret key. Every location of a secret in a
configuration is found here.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BaseModel, Field, PlainSerializer, PlainValidator, model_validator

from costprobe.adapters.host.redaction import REDACTOR, read_secret, secrets_of
from costprobe.adapters.http.errors import Misconfigured
from costprobe.core.config.fields import Label, Section, matching

_SCHEMES = {"http", "https"}
# unix:/run/server.sock, or unix:/run/server.sock:/path; the kernel allows a path of 107 bytes.
UNIX_URL: Final = re.compile(r"unix:(?://)?(/[!-9;-~]{1,106})(?::(/[!-~]*))?")
CaFile = Annotated[
    Path | None,
    Field(
        description="CA certificates to verify an https server with, instead of the system's.",
        examples=["/etc/costprobe/ca.pem"],
    ),
]
_HEADER: Final = matching(r"[A-Za-z][A-Za-z0-9-]{0,63}", "the name of an HTTP header")
# Set by us, or by token or password.
_OWN_HEADERS: Final = frozenset(
    {
        *("authorization", "connection", "content-encoding", "content-length", "content-type"),
        *("host", "transfer-encoding", "user-agent"),
    }
)
Headers = Annotated[
    dict[Annotated[str, _HEADER], Label],
    Field(
        default_factory=dict,
        max_length=8,
        description="Further HTTP headers, without secrets.",
        examples=[{"X-Scope-OrgID": "ml"}],
    ),
]
SERVICE_CREDENTIALS: Final = "/run/credentials/costprobe.service"
_SECRET_PLACE: Final = re.compile(r"file:/[^\0]+|credential:[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")
_ARGUMENT_CHARS_MIN: Final = 8
_PORT: Final = re.compile(r":\d{1,5}$")


@dataclass(frozen=True, slots=True)
class ExchangeLimits:
    """The limits of one exchange: a request and its response.

    Attributes:
        step_s: Longest wait in s for the server: to connect, to send, or to receive a part.
        total_s: Longest time in s of the whole exchange; None for three times `step_s`.
        max_body_bytes: A longer body is truncated, and the connection closed.
        max_header_bytes: A longer response header fails, and so does a body whose framing (chunk
            sizes, trailers) is longer than that.
    """

    step_s: float
    total_s: float | None = None
    max_body_bytes: int = 64 << 10
    max_header_bytes: int = 64 << 10


@dataclass(frozen=True, slots=True)
class Destination:
    """An http or https URL, or HTTP on a Unix socket.

    Attributes:
        name: Its name in messages: the origin of the URL, or the location of a secret URL; empty if
            the caller adds the name.
        url: The URL.
        is_tls: True for https.
        socket_path: Unix socket of the server; None for TCP.
    """

    name: str
    url: str = field(repr=False)
    is_tls: bool
    socket_path: str | None = None

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
            url: The URL, or UNIX_URL.
            secret_place: Location of a secret URL; None if the URL may be shown.

        Raises:
            Misconfigured: It is not http or https, contains a user or a character outside
                printable ASCII, or has no valid host and port.
        """
        if match := UNIX_URL.fullmatch(url):
            path = f"http://localhost{match[2] or '/'}"
            return cls(url, path, is_tls=False, socket_path=match[1])
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
        if secret_place is not None:
            REDACTOR.learn(url)
        name = secret_place or f"{parts.scheme}://{parts.netloc}"
        return cls(name, url, parts.scheme == "https")


def is_loopback(url: str) -> bool:
    """Return whether a URL's host is this one, where compression costs more than copying."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def environment_proxy(url: str, proxies: Mapping[str, str]) -> str | None:
    """Return the proxy of a URL; None for a direct connection.

    Args:
        url: An http or https URL.
        proxies: As `urllib.request.getproxies` returns them, by scheme. `no` is a list of hosts,
            which contain their subdomains, of addresses, of networks ("10.0.0.0/8"), each perhaps
            with a port, or "*".
    """
    parts = urlsplit(url)
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    entries = proxies.get("no", "").replace(",", " ").split()
    if not proxy or any(_is_of_entry(entry, parts.hostname or "", port) for entry in entries):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_of_entry(entry: str, host: str, port: int) -> bool:
    """Return whether an entry of no_proxy names a host, in lower case."""
    with suppress(ValueError):
        # A bare IPv6 address has no port.
        network = ipaddress.ip_network(entry.strip("[]"), strict=False)
        with suppress(ValueError):
            return ipaddress.ip_address(host) in network
        return False
    name, _, of_port = entry.rpartition(":") if _PORT.search(entry) else (entry, "", "")
    name = name.strip("[]").lower().removeprefix("*").strip(".")
    is_name = host == name or not name or host.endswith(f".{name}")
    return is_name and of_port in ("", str(port))


@dataclass(frozen=True, slots=True)
class Secret:
    """The location of a secret; the secret itself is never stored, because it may be rotated.

    Attributes:
        place: As in the configuration: "file:/etc/costprobe/token", or "credential:costprobe-token" of
            systemd.
        purpose: Its name in messages: "token", "password", "URL".
    """

    place: str
    purpose: str

    @classmethod
    def of_file(cls, path: Path, purpose: str) -> Secret:
        """Return the secret of a file."""
        return cls(f"file:{path}", purpose)

    @property
    def credential(self) -> str | None:
        """Name of the systemd credential that contains it; None for a file."""
        kind, _, name = self.place.partition(":")
        return name if kind == "credential" else None

    @property
    def path(self) -> Path:
        """The file that contains it; of a credential, where systemd stores it for this process."""
        if self.credential is None:
            return Path(self.place.partition(":")[2])
        return Path(_credentials_folder() or SERVICE_CREDENTIALS) / self.credential

    @property
    def is_readable(self) -> bool:
        """False for a credential in a process without credentials: only the service can read it."""
        return self.credential is None or _credentials_folder() is not None

    @property
    def where(self) -> str:
        """Its location, for messages."""
        return f"{self.path}" if self.credential is None else f"credential {self.credential}"

    def read(self) -> str:
        """Read the secret.

        Raises:
            Misconfigured: It cannot be read, or is not one line of printable text.
        """
        if not self.is_readable:
            raise Misconfigured(
                f"{self.where}: this process has none from systemd; add LoadCredential= to the unit"
            )
        try:
            return read_secret(self.path, self.purpose)
        except ValueError as error:
            raise Misconfigured(str(error)) from None

    def read_ascii(self) -> str:
        """Read a secret that is sent in a header as it is.

        Raises:
            Misconfigured: As `read`, or it has characters outside ASCII.
        """
        secret = self.read()
        if not secret.isascii():
            raise Misconfigured(f"{self.path}: has characters that are not valid in an HTTP header")
        return secret

    def problems(self) -> list[str]:
        """Return why it cannot be read; empty if only the service can."""
        try:
            if self.is_readable:
                self.read()
        except Misconfigured as error:
            return [error.reason]
        return []


def _credentials_folder() -> str | None:
    """Where systemd stored this process's credentials; None without any."""
    return os.environ.get("CREDENTIALS_DIRECTORY") or None


def _secret(purpose: str) -> PlainValidator:
    """Return the parser of a secret's location; no error contains the text, which may be the secret."""

    def parse(value: object) -> Secret:
        if isinstance(value, Secret):
            return value
        if not isinstance(value, str) or not _SECRET_PLACE.fullmatch(value):
            raise ValueError(
                f'write where the {purpose} is, "file:/PATH" or "credential:NAME" of systemd, never'
                f" the {purpose} itself"
            )
        return Secret(value, purpose)

    return PlainValidator(parse)


_AsPlace = PlainSerializer(lambda secret: secret.place, return_type=str)
Token = Annotated[Secret, _secret("token"), _AsPlace]
Password = Annotated[Secret, _secret("password"), _AsPlace]
Key = Annotated[Secret, _secret("key"), _AsPlace]
SecretUrl = Annotated[Secret, _secret("URL"), _AsPlace]


def is_secret_place(value: object) -> bool:
    """Return whether a value of the file is the location of a secret."""
    return isinstance(value, Secret) or (
        isinstance(value, str) and _SECRET_PLACE.fullmatch(value) is not None
    )


def one_form(*names: str) -> dict[str, str]:
    """Return what `Section.removed` says of the two keys that each of these secrets had."""
    return {
        f"{name}_{kind}": f'write {name} = "{kind}:{place}"'
        for name in names
        for kind, place in (("file", "/PATH"), ("credential", "NAME"))
    }


def bearer(token: Secret | None, scheme: str = "Bearer") -> dict[str, str]:
    """Return the Authorization header with a token; nothing without a token.

    Raises:
        Misconfigured: As `Secret.read_ascii`.
    """
    return {} if token is None else {"Authorization": f"{scheme} {token.read_ascii()}"}


def basic(user: str, password: Secret | None) -> dict[str, str]:
    """Return the Authorization header of a user, with or without a password.

    Raises:
        Misconfigured: As `Secret.read`.
    """
    secret = "" if password is None else password.read()
    # In UTF-8 (RFC 7617).
    pair = base64.b64encode(f"{user}:{secret}".encode()).decode()
    REDACTOR.learn(pair if secret else "")
    return {"Authorization": f"Basic {pair}"}


class WithToken(Section):
    """A section with a bearer token."""

    removed: ClassVar = one_form("token")

    token: Token | None = Field(
        None, description="Location of a bearer token.", examples=["file:/etc/costprobe/token"]
    )


class WithPassword(Section):
    """A section with a user and a password."""

    removed: ClassVar = one_form("password")

    user: str | None = Field(
        None, description="User, if the server requires one.", examples=["costprobe"]
    )
    password: Password | None = Field(
        None,
        description="Location of the user's password.",
        examples=["file:/etc/costprobe/server.password"],
    )

    @model_validator(mode="after")
    def _password_belongs_to_a_user(self) -> WithPassword:
        if self.password is not None and self.user is None:
            raise ValueError("password needs a user; add user")
        return self


class WithHeaders(Section):
    """A section with further headers."""

    removed: ClassVar = one_form("key")

    headers: Headers = Field(default_factory=dict)
    key: Key | None = Field(
        None,
        description=(
            "Location of a key that is sent in the header `key_header`, beside any token or password."
        ),
        examples=["file:/etc/costprobe/gateway.key"],
    )
    key_header: Annotated[str, _HEADER] = Field(
        "X-Api-Key", description="Header of that key.", examples=["X-Api-Key"]
    )

    @model_validator(mode="after")
    def _headers_are_further_ones(self) -> WithHeaders:
        names = {name.lower(): f"headers.{name}" for name in self.headers}
        if place := names.get(self.key_header.lower()):
            raise ValueError(f"{place}: its value goes into key")
        check_header_names({**names, self.key_header.lower(): "key_header"})
        return self

    def sent_headers(self) -> dict[str, str]:
        """Return the headers, with the key as it is at the time of a request.

        Raises:
            Misconfigured: The key cannot be read.
        """
        if self.key is None:
            return self.headers
        return {**self.headers, self.key_header: self.key.read_ascii()}


def check_header_names(names: Mapping[str, str]) -> None:
    """Check that further headers replace none that costprobe sets.

    Args:
        names: Place in the section, by the header's name in lower case.

    Raises:
        ValueError: One of them does.
    """
    for name in sorted(_OWN_HEADERS & names.keys()):
        raise ValueError(
            f"{names[name]}: {name} is set by costprobe; a token or password has a key of its own"
        )


def secret_places(config: BaseModel) -> Iterator[tuple[str, Secret]]:
    """Yield the configured locations of secrets by their keys, such as "notifier.0.token"."""
    for key, value in _fields(config):
        if isinstance(value, Secret):
            yield key, value


def secret_problems(config: BaseModel) -> list[str]:
    """Return why secrets of a section cannot be read, as far as this process can know."""
    return [problem for _, secret in secret_places(config) for problem in secret.problems()]


def learn_secrets(config: BaseModel | None) -> None:
    """Let the redactor know all secrets of the environment and of a configuration.

    A secret that cannot be read, or replaces another one later, is learned when it is first used.

    Args:
        config: The configuration; None if it has errors.
    """
    REDACTOR.learn(*secrets_of(os.environ))
    if config is None:
        return
    for _, secret in secret_places(config):
        with suppress(ValueError):
            read_secret(secret.path, secret.purpose)
    for key, value in _fields(config):
        REDACTOR.learn(*_secret_parts(key, value))


def _secret_parts(key: str, value: object) -> Iterator[str]:
    """Yield the users and queries of an address, and the values among the arguments of a command."""
    if not isinstance(value, str):
        return
    if ".command." in key and not key.endswith(".0"):
        argument = value.rpartition("=")[2]
        is_value = not argument.startswith(("/", "-")) and not argument.isalpha()
        if is_value and len(argument) >= _ARGUMENT_CHARS_MIN:
            yield argument
    with suppress(ValueError):
        parts = urlsplit(value)
        if parts.scheme and parts.netloc:
            yield unquote(parts.password or "")
            yield from (text for _, text in parse_qsl(parts.query))


def _fields(value: object, key: str = "") -> Iterator[tuple[str, object]]:
    """Yield all values of a configuration with their places."""
    prefix = f"{key}." if key else ""
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _fields(getattr(value, name), f"{prefix}{name}")
    elif isinstance(value, Mapping):
        for name, held in value.items():
            yield from _fields(held, f"{prefix}{name}")
    elif isinstance(value, tuple | list):
        for number, held in enumerate(value):
            yield from _fields(held, f"{prefix}{number}")
    elif value is not None:
        yield key, value
