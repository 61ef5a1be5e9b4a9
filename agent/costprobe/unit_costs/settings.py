"""The section [[price_file]]: files of token prices that the daemon writes for gateways."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from costprobe.core.config.fields import Duration, Name, Section, key

Program = Literal["litellm", "langfuse", "openlit"]


class PriceFileConfig(Section):
    """A file with what tokens measurably cost, as `costprobe price export` writes it, for a gateway.

    The daemon writes it at its start and after each day (UTC).
    """

    program: Program = Field(description="Program that loads the file.", examples=["litellm"])
    file: Path = Field(
        description="The file, in a folder of the daemon's user in which no other user may write.",
        examples=["/var/lib/costprobe/litellm.json"],
    )
    mode: Literal["0600", "0640", "0644"] = Field(
        "0640", description="Permissions of the file.", examples=["0644"]
    )
    window_s: Duration = key(
        "window", 7 * 86_400.0, description="Time before now whose mean cost is written."
    )
    usd: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        None,
        description="US dollars for one unit of the services' currency, if that is another.",
        examples=[1.08],
    )
    provider: Name = Field(
        "openai", description="litellm's provider of the models.", examples=["hosted_vllm"]
    )


def price_file_problems(files: Sequence[PriceFileConfig], services: int) -> Iterator[str]:
    """Check that there are services to write prices of, and that no file is written twice.

    Args:
        files: The price files.
        services: Number of services.
    """
    if files and not services:
        yield "price_file: there is no [[service]] whose tokens cost anything; remove it"
    seen: set[Path] = set()
    for index, file in enumerate(files):
        if file.file in seen:
            yield f"price_file[{index}].file: another [[price_file]] has the same file; remove one"
        seen.add(file.file)
