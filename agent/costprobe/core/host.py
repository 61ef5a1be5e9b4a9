"""The section [host], and the tags of every row of this host."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from costprobe.core.config.fields import Label, Name, Section
from costprobe.core.schema import OWN_TAGS


def _label(name: str) -> str:
    if name in OWN_TAGS:
        raise ValueError("is a tag of costprobe; choose another name")
    return name


Labels = dict[Annotated[Name, AfterValidator(_label)], Label]


class HostConfig(Section):
    """This host: its tags in the series, and what it is."""

    name: Annotated[Label, Field(min_length=1)] | None = Field(
        None, description="The tag `host`; by default the host name.", examples=["gpu-01"]
    )
    labels: Labels = Field(
        default_factory=dict,
        description="Further tags on every row, such as rack or team.",
        examples=[{"rack": "a1"}],
    )

    detect: Literal["auto", "off"] = Field(
        "auto",
        description=(
            "Whether to detect the cloud instance, for its list price, while no `[[price]]` is"
            ' configured: "auto" reads DMI, and requests type and region from the metadata service of'
            " the cloud that DMI names."
        ),
        examples=["off"],
    )
