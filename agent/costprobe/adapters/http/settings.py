"""The section [http]: where the daemon serves its own pages, and to whom."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated

from pydantic import Field, model_validator

from costprobe.adapters.http.access import WithToken
from costprobe.core.config.fields import Duration, key, matching

MAX_PORT = 65535
HostName = Annotated[
    str,
    matching(
        r"(?=.{1,253}$)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*",
        "a host name without a port, such as gpu-01.example.com",
    ),
]


class HttpConfig(WithToken):
    """The daemon's own HTTP listener for `/healthz`, `/metrics` and annotations; off by default."""

    listen: str | None = Field(
        None,
        max_length=80,
        description="IP address and port; port 0 selects a free one.",
        examples=["127.0.0.1:9101"],
    )
    allow_remote: bool = Field(
        False,
        description=(
            "Whether `listen` may be an address that other hosts can reach; `/healthz` and `/metrics`"
            " have no authentication."
        ),
    )
    allowed_hosts: tuple[HostName, ...] = Field(
        (),
        max_length=64,
        description=(
            "Host names of this host that a request may name, beside `localhost` and IP addresses;"
            " any other is rejected (DNS rebinding)."
        ),
        examples=[["gpu-01.example.com"]],
    )
    window_s: Duration = key(
        "window",
        900.0,
        le=86400,
        description="How far back `/metrics` looks for the newest value of each series.",
    )
    max_series: int = Field(
        5000,
        ge=100,
        le=50_000,
        description="Most newest values, and most counters, that `/metrics` shows; the rest is counted.",
    )

    @model_validator(mode="after")
    def _listens_where_it_may(self) -> HttpConfig:
        address = self.address
        if address is not None and not (self.allow_remote or ip_address(address[0]).is_loopback):
            raise ValueError(
                f"listen = {self.listen!r} can be reached by other hosts; write a loopback address, or"
                " allow_remote = true"
            )
        return self

    @property
    def address(self) -> tuple[str, int] | None:
        """IP address and port to listen on; None if HTTP is off.

        Raises:
            ValueError: `listen` is not an IP address and port.
        """
        if self.listen is None:
            return None
        host, _, port = self.listen.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        try:
            is_good = ip_address(bare).version == (4 if bare == host else 6)
        except ValueError:
            is_good = False
        if not (is_good and "%" not in bare and port.isascii() and port.isdigit()) or (
            int(port) > MAX_PORT
        ):
            raise ValueError(
                'listen is an IP address and a port, such as "127.0.0.1:9101" or "[::1]:9101"'
            )
        return bare, int(port)
