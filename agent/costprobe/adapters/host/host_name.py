"""The name of this host in the series."""

from __future__ import annotations

import socket

from costprobe.core.config.fields import HostConfig


def host_tag(config: HostConfig) -> str:
    """Return the tag `host`: as configured, else the host's own name."""
    return config.name or socket.gethostname()


def host_tags(config: HostConfig) -> dict[str, str]:
    """Return the tags of every row."""
    return {"host": host_tag(config), **config.labels}
