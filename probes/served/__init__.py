"""Probes of a running server: requests over HTTP, timed; depends on the standard library alone."""

from __future__ import annotations

# Where each kind of server is spoken to; its module has a `Server`. A new kind is a file and a
# line here.
KINDS = {
    "kserve": "probes.served.kserve",
    "openai": "probes.served.openai",
}
