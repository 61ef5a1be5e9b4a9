"""Names that a command was given, and their completion in a shell.

A mistyped name ends the command with the names that are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing

import click

from costprobe.adapters.store.read import StoreReader
from costprobe.core.outside import nearest
from costprobe.core.records import natural
from costprobe.ui.cli.support.place import Settings, bad_input

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


def check_names(reader: StoreReader, settings: Settings, tags: Mapping[str, str | None]) -> None:
    """Check that the store or the configuration knows the value of each tag.

    An empty store knows none, and the command itself reports that.

    Args:
        reader: The store.
        settings: The configuration, whose probes and services may have no row yet; read for a value that
            the store does not know.
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
            known.update(entry.name for entry in getattr(settings.config, kind))
        if value not in known:
            raise unknown_name(" or ".join(kinds), value, known)


MAX_OFFERED = 200

Offer = Callable[[click.Context, click.Parameter, str], list[str]]
_Names = Callable[[str | None], Iterable[str]]


def _complete_names(names: _Names) -> Offer:
    """Complete a value; return nothing on any error, because completion must not print it."""

    def offer(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        del param
        try:
            sorted_names = sorted(set(names(ctx.find_root().params.get("config_path"))))
        except Exception:  # noqa: BLE001 - see the docstring
            return []
        offered = [name for name in sorted_names if name.startswith(incomplete)]
        # A shell would act on a line break or an escape sequence.
        return [name for name in offered if name.isprintable()][:MAX_OFFERED]

    return offer


def _of_config(table: str) -> _Names:
    return lambda path: (entry.name for entry in getattr(Settings(path).config, table))


def _of_tag(*tags: str) -> _Names:
    def names(path: str | None) -> Iterator[str]:
        with closing(StoreReader.open(Settings(path).store_path)) as reader:
            for series in reader.series():
                yield from (series.tags[tag] for tag in tags if tag in series.tags)

    return names


def _probes(path: str | None) -> Iterator[str]:
    from costprobe.probing.settings import BUILT_IN_MODELS  # noqa: PLC0415 - no `--help` shall pay for it

    yield from BUILT_IN_MODELS
    yield from _of_config("probe")(path)


def _silences(path: str | None) -> Iterator[str]:
    with closing(StoreReader.open(Settings(path).store_path)) as reader:
        document, _ = reader.states()["alerts"]
    yield from (silence["id"] for silence in document["silences"])


def _fields(path: str | None) -> Iterator[str]:
    del path
    from costprobe.core.schema import SCHEMA  # noqa: PLC0415 - as above

    for measurement in SCHEMA.values():
        yield from (field for field, kind in measurement.fields.items() if kind in (float, int))


STORED_DEVICES = _complete_names(_of_tag("device"))
STORED_PROBES = _complete_names(_of_tag("probe"))
STORED_SERVICES = _complete_names(_of_tag("service"))
STORED_LOADS = _complete_names(_of_tag("service", "device"))
STORED_MODELS = _complete_names(_of_tag("probe", "service"))
PROBES = _complete_names(_probes)
SERVICES = _complete_names(_of_config("service"))
BUDGETS = _complete_names(_of_config("budget"))
SINKS = _complete_names(_of_config("sink"))
NOTIFIERS = _complete_names(_of_config("notifier"))
SILENCES = _complete_names(_silences)
FIELDS = _complete_names(_fields)
