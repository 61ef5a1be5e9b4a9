"""Every place of a configuration that holds a secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BaseModel

from costprobe.adapters.net.secret import credentials_folder
from costprobe.adapters.system.redaction import REDACTOR, secrets_of
from costprobe.adapters.system.secret_file import read_secret

# Names of files that are no secrets; any other field of such a name is a secret.
PUBLIC_FILES: Final = frozenset({"ca_file"})
SERVICE_CREDENTIALS: Final = Path("/run/credentials/costprobe.service")
_ARGUMENT_CHARS_MIN: Final = 8


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
