"""Find the secrets that a bundle must not contain, and mask addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

from costprobe.adapters.system.redaction import MASK, MIN_SECRET_CHARS, secrets_of
from costprobe.adapters.system.secret_file import read_secret
from costprobe.app.configuration import Config

SECRET_KEYS: Final = ("token", "password", "key", "url")
SERVICE_CREDENTIALS: Final = Path("/run/credentials/costprobe.service")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]{1,30}://[^\s\"'<>\\,;)]+", re.IGNORECASE)
# Shorter words, such as "webhook" and "services", occur in texts by chance.
_PLAIN_WORD: Final = re.compile(r"[a-z]{1,11}")
_PARTS: Final = re.compile(r"[/?&=:@#,;]+")


def known_secrets(config: Config | None, environ: Mapping[str, str]) -> list[str]:
    """Return every secret in the environment and in the files that the configuration names.

    Args:
        config: The configuration; None if it has errors.
        environ: The environment.
    """
    secrets = secrets_of(environ)
    folders = [SERVICE_CREDENTIALS]
    if environ.get("CREDENTIALS_DIRECTORY"):
        folders.insert(0, Path(environ["CREDENTIALS_DIRECTORY"]))
    for path, is_address in _places(config, folders):
        try:
            secret = read_secret(path, "secret")
        except ValueError:
            continue  # costprobe cannot read it, so no text contains it
        secrets.append(secret)
        if is_address:
            secrets += _pieces(secret)
    return secrets


def _pieces(address: str) -> Iterator[str]:
    """Return the secret parts of an address: users, passwords, tokens."""
    user, is_user, _ = address.partition("://")[2].rpartition("@")
    yield from _PARTS.split(user) if is_user else ()
    for piece in _PARTS.split(address):
        if len(piece) >= MIN_SECRET_CHARS and not _PLAIN_WORD.fullmatch(piece):
            yield from (piece, unquote(piece))


def _places(config: Config | None, folders: list[Path]) -> Iterator[tuple[Path, bool]]:
    """Yield files of secrets, and whether each contains an address."""
    for table in () if config is None else (*config.sink, *config.notifier):
        for key in SECRET_KEYS:
            file = getattr(table, f"{key}_file", None)
            credential = getattr(table, f"{key}_credential", None)
            if file is not None:
                yield file, key == "url"
            if credential is not None:
                for folder in folders:
                    yield folder / credential, key == "url"


def without_addresses(text: str) -> str:
    """Cut each address in a text after its port, because services put secrets into paths."""
    return _URL.sub(lambda match: _bare(match[0]), text)


def _bare(url: str) -> str:
    """Return scheme, host and port of an address."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port
    except ValueError:
        return MASK
    place = f"[{host}]" if ":" in host else host
    masked_path = f"/{MASK}" if parts.path not in {"", "/"} or parts.query or parts.fragment else ""
    return urlunsplit((parts.scheme, f"{place}:{port}" if port else place, masked_path, "", ""))
