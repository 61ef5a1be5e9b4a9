"""The kinds of server: a new kind is a client and a line in SERVERS."""

from __future__ import annotations

from typing import Final

# Probe kind -> class that implements ServerClient. As text: the daemon reads the table, and does not
# need the clients.
SERVERS: Final = {
    "http": "costprobe.adapters.load_child.clients:AnyClient",
    "kserve": "costprobe.adapters.load_child.clients:KserveClient",
    "openai": "costprobe.adapters.load_child.clients:OpenAiClient",
}
