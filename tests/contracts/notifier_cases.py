"""The notifiers that the contract suite runs, each with sections that send to a URL."""

from collections.abc import Callable
from typing import Any, NamedTuple


class NotifierCase(NamedTuple):
    """Sections of one kind of notifier.

    Attributes:
        keys: Of a section that sends to an HTTP URL; `secret` writes a file.
        secret_keys: The same with a secret that contains CANARY in a file.
    """

    keys: Callable[[str, Callable[[str], Any]], dict[str, Any]]
    secret_keys: Callable[[str, Callable[[str], Any]], dict[str, Any]]


CANARY = "canary-token"
CASES = {
    "alertmanager": NotifierCase(
        keys=lambda url, _: {"url": url},
        secret_keys=lambda url, secret: {"url": url, "token": f"file:{secret(CANARY)}"},
    ),
    "webhook": NotifierCase(
        keys=lambda url, _: {"url": url},
        secret_keys=lambda url, secret: {"url": f"file:{secret(f'{url}/{CANARY}')}"},
    ),
    "apprise": NotifierCase(
        keys=lambda url, secret: {"url": f"file:{secret(url.replace('http', 'json', 1))}"},
        secret_keys=lambda url, secret: {
            "url": f"file:{secret(url.replace('http', 'json', 1) + '/' + CANARY)}"
        },
    ),
    "ntfy": NotifierCase(
        keys=lambda url, _: {"url": url},
        secret_keys=lambda url, secret: {"url": url, "token": f"file:{secret(CANARY)}"},
    ),
}
