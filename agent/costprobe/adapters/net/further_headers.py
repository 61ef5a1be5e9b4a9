"""Further headers of an HTTP client: those of its section, and a key from a file or credential."""

from __future__ import annotations

import os

from costprobe.adapters.net.secret import Secret, credentials_folder
from costprobe.adapters.net.settings import WithHeaders


class FurtherHeaders:
    """The headers of a section, with its key as it is at the time of a request.

    Args:
        config: The section.
    """

    def __init__(self, config: WithHeaders) -> None:
        self._config = config
        folder = credentials_folder(os.environ)
        self._key = Secret("key", config.key_file, config.key_credential, folder)

    def __call__(self) -> dict[str, str]:
        """Return the headers.

        Raises:
            Misconfigured: The key cannot be read.
        """
        if not self._key.is_given:
            return self._config.headers
        return {**self._config.headers, self._config.key_header: self._key.read_ascii()}
