"""The section [[probe]] of all kinds, and the limits of all probes together."""

from __future__ import annotations

from typing import Annotated

from pydantic import Discriminator, Field, Tag

from costprobe.adapters.load_child.kinds import SERVERS
from costprobe.adapters.probing.model_settings import ProbeConfig
from costprobe.adapters.probing.served_settings import KserveProbeConfig, OpenAiProbeConfig
from costprobe.core.config.fields import Section, Share


class ProbingConfig(Section):
    """Limits of all probes together."""

    duty: Share = Field(
        0.01,
        description="Largest share of a device's time spent on probes, over an hour.",
        examples=["1%"],
    )


def _probe_kind(value: object) -> str:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return kind if isinstance(kind, str) and kind in SERVERS else "[torch]"


AnyProbeConfig = Annotated[
    Annotated[ProbeConfig, Tag("[torch]")]
    | Annotated[OpenAiProbeConfig, Tag("openai")]
    | Annotated[KserveProbeConfig, Tag("kserve")],
    Discriminator(_probe_kind),
]
