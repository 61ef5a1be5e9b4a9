"""The cloud instance that a host is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Market = Literal["on_demand", "spot", ""]
# Names of clouds as they write them; any other is shown as in the catalogue.
_CLOUDS = {
    "aws": "AWS",
    "azure": "Azure",
    "gcp": "Google Cloud",
    "oci": "Oracle Cloud",
    "lambda": "Lambda",
    "coreweave": "CoreWeave",
    "digitalocean": "DigitalOcean",
    "gpuhub": "GPUHub",
    "hetzner": "Hetzner",
    "jarvislabs": "JarvisLabs",
    "ovhcloud": "OVHcloud",
    "runpod": "RunPod",
    "runpod-community": "RunPod's community",
    "verda": "Verda",
    "vultr": "Vultr",
}


@dataclass(frozen=True, slots=True)
class Instance:
    """A rented host.

    Attributes:
        cloud: As in the catalogue: "aws".
        type: The cloud's name of the instance type; empty if unknown.
        region: The cloud's name of the region; empty if unknown.
        market: How it is rented, as far as the cloud reports it: a reservation is "on_demand".
    """

    cloud: str
    type: str = ""
    region: str = ""
    market: Market = ""

    @property
    def is_complete(self) -> bool:
        """Whether type and region are known."""
        return bool(self.type and self.region)

    @property
    def words(self) -> str:
        """The instance for people: "p5.48xlarge in us-east-1"."""
        where = f" in {self.region}" if self.region else ", region unknown"
        return f"{self.type}{where}" if self.type else f"a host of {cloud_words(self.cloud)}"


def cloud_words(cloud: str) -> str:
    """Return the name of a cloud as it writes it."""
    return _CLOUDS.get(cloud, cloud)
