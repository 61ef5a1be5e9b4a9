"""The section [kubernetes]."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, model_validator

from costprobe.adapters.net.settings import CaFile, TokenFile
from costprobe.core.config.fields import IS_BARE_URL, Duration, Label, Section, key

# Where the kubelet serves the PodResources API.
SOCKET: Final = Path("/var/lib/kubelet/pod-resources/kubelet.sock")


class KubernetesConfig(Section):
    """Cost allocation to the containers of this node, by the kubelet's PodResources API."""

    socket: Path = Field(SOCKET, description="The kubelet's socket of the PodResources API.")
    every_s: Duration = key("every", 15.0, description="Time between two readings of the pods.")
    window_s: Duration = key(
        "window", 300.0, description="Time over which the cost of a pod's devices is aggregated."
    )
    api_url: Annotated[str, IS_BARE_URL] | None = Field(
        None,
        description=(
            "The API server, for the pods' annotations and owners; without it, no pod is scraped, and"
            " workloads are named by their pods' names."
        ),
        examples=["https://kubernetes.default.svc"],
    )
    node: Annotated[Label, Field(min_length=1)] | None = Field(
        None,
        description="Name of this node at the API server; by default the host's name.",
        examples=["gpu-node-7"],
    )
    token_file: TokenFile = None
    ca_file: CaFile = None

    @model_validator(mode="after")
    def _api_server_is_named(self) -> KubernetesConfig:
        of_server = ("node", "token_file", "ca_file")
        unused = next((name for name in of_server if getattr(self, name) is not None), None)
        if self.api_url is None and unused is not None:
            raise ValueError(
                f"{unused} is for the API server: add api_url, such as"
                f' "https://kubernetes.default.svc", or remove {unused}'
            )
        return self
