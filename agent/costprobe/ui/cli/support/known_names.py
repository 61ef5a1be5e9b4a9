"""Names that a command was given: a mistyped one ends it with the names that are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import click

from costprobe.adapters.store.read import StoreReader
from costprobe.core.outside import nearest
from costprobe.core.records import natural
from costprobe.ui.cli.support.place import bad_input

if TYPE_CHECKING:  # the import takes longer than commands that need no configuration
    from costprobe.configuration import Config

NAMES_SHOWN = 20


def unknown_name(kind: str, name: str, known: Iterable[str]) -> click.ClickException:
    """Return the error for a name that is none of the known ones, with exit code 2.

    Args:
        kind: What it names, such as "device".
        name: The name as written.
        known: The known names; at most 20 of them are listed, the most similar one always.
    """
    names = sorted(set(known), key=natural)
    if not names:
        return bad_input(f"unknown {kind} {name!r}; none is known")
    similar = nearest(name, names)
    hint = f"did you mean {similar}? " if similar else ""
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return bad_input(
        f"unknown {kind} {name!r}; {hint}write one of {', '.join(names[:NAMES_SHOWN])}{more}"
    )


def check_names(
    reader: StoreReader, config: Callable[[], Config], tags: Mapping[str, str | None]
) -> None:
    """Check that the store or the configuration knows the value of each tag.

    An empty store knows none, and the command itself reports that.

    Args:
        reader: The store.
        config: Returns the configuration, whose probes and services may have no row yet; called for
            a value that the store does not know.
        tags: Values by tag; None is not checked. The tag `model` is a probe or a service.

    Raises:
        click.ClickException: A value is unknown; with exit code 2 and the known ones.
    """
    wanted = {tag: value for tag, value in tags.items() if value is not None}
    all_series = reader.series() if wanted else []
    if not all_series:
        return
    for tag, value in wanted.items():
        kinds = ("probe", "service") if tag == "model" else (tag,)
        known = {
            series.tags[kind] for series in all_series for kind in kinds if kind in series.tags
        }
        if value in known:
            continue
        for kind in {"probe", "service"}.intersection(kinds):
            known.update(entry.name for entry in getattr(config(), kind))
        if value not in known:
            raise unknown_name(" or ".join(kinds), value, known)
