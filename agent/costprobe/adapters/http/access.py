"""Addresses, TLS and secrets of HTTP clients: the configuration keys that they share.

Secrets are in files or systemd credentials, are read when needed, and are never shown; neither
are the secret parts of a URL. Further headers are those of a client's section, and a key from a
file or credential. Every place of a configuration that holds a secret is found here.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BaseModel, Field, model_validator

from costprobe.adapters.host.redaction import REDACTOR, read_secret, secrets_of
from costprobe.adapters.http.errors import Misconfigured
from costprobe.core.config.fields import Label, Name, Section, matching

_SCHEMES = {"http", "https"}
# unix:/run/server.sock, or unix:/run/server.sock:/path; the kernel allows a path of 107 bytes.
UNIX_URL: Final = re.compile(r"unix:(?://)?(/[!-9;-~]{1,106})(?::(/[!-~]*))?")
# Shorter parts of a secret URL, such as "api" and "v1", occur in responses by chance.
MIN_SECRET_PART_CHARS = 6
TokenFile = Annotated[
    Path | None, Field(description="File with a bearer token.", examples=["/etc/costprobe/token"])
]
TokenCredential = Annotated[
    Name | None,
    Field(
        description="Name of the systemd credential with that token.", examples=["costprobe-token"]
    ),
]
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
KeyFile = Annotated[
    Path | None,
    Field(
        description="File with a key that is sent in the header `key_header`, beside any token or password.",
        examples=["/etc/costprobe/gateway.key"],
    ),
]
KeyCredential = Annotated[
    Name | None,
    Field(description="Name of the systemd credential with that key.", examples=["gateway-key"]),
]
# Names of files that are no secrets; any other field of such a name is a secret.
PUBLIC_FILES: Final = frozenset({"ca_file", "body_file"})
SERVICE_CREDENTIALS: Final = Path("/run/credentials/costprobe.service")
_ARGUMENT_CHARS_MIN: Final = 8
_PORT: Final = re.compile(r":\d{1,5}$")


@dataclass(frozen=True, slots=True)
class Destination:
    """An http or https URL, or HTTP on a Unix socket.

    Attributes:
        name: Its name in messages: the origin of the URL, or the location of a secret URL; empty if
            the caller adds the name.
        url: The URL.
        is_tls: True for https.
        secrets: Parts of the URL that no message may contain.
        socket_path: Unix socket of the server; None for TCP.
    """

    name: str
    url: str = field(repr=False)
    is_tls: bool
    secrets: tuple[str, ...] = field(default=(), repr=False)
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


def credentials_folder(environ: Mapping[str, str]) -> Path | None:
    """Where systemd stored this process's credentials; None without any.

    Args:
        environ: The process's environment.
    """
    folder = environ.get("CREDENTIALS_DIRECTORY")
    return Path(folder) if folder else None


@dataclass(frozen=True, slots=True)
class Secret:
    """The location of a secret; the secret itself is never stored, because it may be rotated.

    Attributes:
        purpose: Its name in messages: "token", "password", "URL".
        file: File that contains it.
        credential: Name of a systemd credential that contains it.
        folder: Where systemd stored this process's credentials; None without any.
    """

    purpose: str
    file: Path | None = None
    credential: str | None = None
    folder: Path | None = None

    @property
    def is_given(self) -> bool:
        """Whether a secret is configured."""
        return self.file is not None or self.credential is not None

    @property
    def where(self) -> str:
        """Its location, for messages."""
        return f"credential {self.credential}" if self.credential is not None else f"{self.file}"

    def read(self) -> str:
        """Read the secret.

        Raises:
            Misconfigured: It cannot be read, or is not one line of printable text.
        """
        try:
            return read_secret(self._path(), self.purpose)
        except ValueError as error:
            raise Misconfigured(str(error)) from None

    def read_ascii(self) -> str:
        """Read a secret that is sent in a header as it is.

        Raises:
            Misconfigured: As `read`, or it has characters outside ASCII.
        """
        secret = self.read()
        if not secret.isascii():
            raise Misconfigured(
                f"{self._path()}: has characters that are not valid in an HTTP header"
            )
        return secret

    def problems(self) -> list[str]:
        """Return why it cannot be read; empty for a credential in a process without credentials."""
        if not self.is_given or (self.credential is not None and self.folder is None):
            return []
        try:
            self.read()
        except Misconfigured as error:
            return [error.reason]
        return []

    def _path(self) -> Path:
        if self.credential is not None:
            if self.folder is None:
                raise Misconfigured(
                    f"credential {self.credential}: this process has none from systemd;"
                    " add LoadCredential= to the unit"
                )
            return self.folder / self.credential
        if self.file is None:
            raise Misconfigured(f"no {self.purpose} is configured")
        return self.file


def bearer(token: Secret, scheme: str = "Bearer") -> tuple[dict[str, str], list[str]]:
    """Return the Authorization header with a token, and its secrets; both empty without a token.

    Raises:
        Misconfigured: As `Secret.read_ascii`.
    """
    if not token.is_given:
        return {}, []
    secret = token.read_ascii()
    return {"Authorization": f"{scheme} {secret}"}, [secret]


def basic(user: str, password: Secret) -> tuple[dict[str, str], list[str]]:
    """Return the Authorization header of a user, with or without a password, and its secrets.

    Raises:
        Misconfigured: As `Secret.read`.
    """
    secret = password.read() if password.is_given else ""
    # In UTF-8 (RFC 7617).
    pair = base64.b64encode(f"{user}:{secret}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}, [secret, pair] if secret else []


class WithToken(Section):
    """A section with a bearer token."""

    token_file: TokenFile = None
    token_credential: TokenCredential = None

    @model_validator(mode="after")
    def _one_place_for_the_token(self) -> WithToken:
        if self.token_file and self.token_credential:
            raise ValueError("give token_file or token_credential, not both")
        return self

    def token(self, credentials: Path | None) -> Secret:
        """Return the location of the token; `credentials` are those of systemd, None without any."""
        return Secret("token", self.token_file, self.token_credential, credentials)


class WithPassword(Section):
    """A section with a user and a password."""

    user: str | None = Field(
        None, description="User, if the server requires one.", examples=["costprobe"]
    )
    password_file: Path | None = Field(
        None,
        description="File with the user's password.",
        examples=["/etc/costprobe/server.password"],
    )
    password_credential: Name | None = Field(
        None,
        description="Name of the systemd credential with that password.",
        examples=["server-password"],
    )

    @model_validator(mode="after")
    def _password_belongs_to_a_user(self) -> WithPassword:
        if self.password_file and self.password_credential:
            raise ValueError("give password_file or password_credential, not both")
        if (self.password_file or self.password_credential) and self.user is None:
            raise ValueError("password_file and password_credential need a user; add user")
        return self

    def password(self, credentials: Path | None) -> Secret:
        """Return the location of the password; `credentials` as for `WithToken.token`."""
        return Secret("password", self.password_file, self.password_credential, credentials)


class WithHeaders(Section):
    """A section with further headers."""

    headers: Headers = Field(default_factory=dict)
    key_file: KeyFile = None
    key_credential: KeyCredential = None
    key_header: Annotated[str, _HEADER] = Field(
        "X-Api-Key", description="Header of that key.", examples=["X-Api-Key"]
    )

    @model_validator(mode="after")
    def _headers_are_further_ones(self) -> WithHeaders:
        if self.key_file and self.key_credential:
            raise ValueError("give key_file or key_credential, not both")
        names = {name.lower(): f"headers.{name}" for name in self.headers}
        if place := names.get(self.key_header.lower()):
            raise ValueError(f"{place}: its value goes into key_file or key_credential")
        check_header_names({**names, self.key_header.lower(): "key_header"})
        return self


def check_header_names(names: Mapping[str, str]) -> None:
    """Check that further headers replace none that costprobe sets.

    Args:
        names: Place in the section, by the header's name in lower case.

    Raises:
        ValueError: One of them does.
    """
    for name in sorted(_OWN_HEADERS & names.keys()):
        raise ValueError(
            f"{names[name]}: {name} is set by costprobe; a token or password has a file of its own"
        )


class FurtherHeaders:
    """The headers of a section, with its key as it is at the time of a request.

    Args:
        config: The section.
        credentials: Where systemd stored this process's credentials; None without any.

    Attributes:
        key: The location of the key.
    """

    def __init__(self, config: WithHeaders, credentials: Path | None) -> None:
        self._config = config
        self.key = Secret("key", config.key_file, config.key_credential, credentials)

    def __call__(self) -> dict[str, str]:
        """Return the headers.

        Raises:
            Misconfigured: The key cannot be read.
        """
        if not self.key.is_given:
            return self._config.headers
        return {**self._config.headers, self._config.key_header: self.key.read_ascii()}


class SecretPlace(NamedTuple):
    """A field that names a file or a systemd credential with a secret.

    Attributes:
        key: Its place in the configuration: "notifier.0.token_file".
        name: The file or the credential.
        is_credential: Whether it is a credential.
    """

    key: str
    name: str
    is_credential: bool


def is_secret_field(name: str) -> bool:
    """Return whether a field of this name holds the place of a secret."""
    return name.endswith("_credential") or (name.endswith("_file") and name not in PUBLIC_FILES)


def secret_places(config: BaseModel) -> Iterator[SecretPlace]:
    """Yield the configured places of secrets."""
    for key, value in _fields(config):
        name = key.rpartition(".")[2]
        if is_secret_field(name):
            yield SecretPlace(key, str(value), name.endswith("_credential"))


def learn_secrets(config: BaseModel | None, environ: Mapping[str, str]) -> None:
    """Let the redactor know all secrets of the environment and of a configuration.

    A secret that cannot be read, or replaces another one later, is learned when it is first used.

    Args:
        config: The configuration; None if it has errors.
        environ: The environment.
    """
    REDACTOR.learn(*secrets_of(environ))
    if config is None:
        return
    folder = credentials_folder(environ)
    folders = [SERVICE_CREDENTIALS] if folder is None else [folder, SERVICE_CREDENTIALS]
    for place in secret_places(config):
        for path in (
            [folder / place.name for folder in folders]
            if place.is_credential
            else [Path(place.name)]
        ):
            with suppress(ValueError):
                read_secret(path, "secret")
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
