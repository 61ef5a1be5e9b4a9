"""Sections of several kinds: the union type of a table, built from a registry."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Annotated, Any

from pydantic import Discriminator, Tag

from costprobe.core.config.fields import Section


def union_of_kinds(kinds: Mapping[str, type[Section]], key: str) -> Any:
    """Return the type of a table whose key selects one of several section classes.

    Args:
        kinds: Section classes by kind, as a registry lists them.
        key: Key of the table that names the kind.
    """

    def kind_of(value: Any) -> str:
        return str(value.get(key) if isinstance(value, dict) else getattr(value, key, None))

    members = (Annotated[section, Tag(kind)] for kind, section in kinds.items())
    return Annotated[reduce(or_, members), Discriminator(kind_of)]
