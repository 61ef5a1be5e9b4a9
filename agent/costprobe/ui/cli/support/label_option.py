"""The option --label of commands that read rows."""

from __future__ import annotations

import click


class LabelValue(click.ParamType[tuple[str, str]]):
    """A label and its value, as NAME=VALUE."""

    name = "name=value"

    def convert(
        self,
        value: str | tuple[str, str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> tuple[str, str]:
        """Return name and value."""
        if isinstance(value, tuple):
            return value
        name, equals, wanted = value.partition("=")
        if not name or not equals or not wanted:
            self.fail(f"{value!r}: write NAME=VALUE, such as team=search", param, ctx)
        return name, wanted


LABEL = click.option(
    "--label",
    "labels",
    type=LabelValue(),
    multiple=True,
    help="Only rows with this label of a service, probe or host, such as team=search; may be repeated.",
)
