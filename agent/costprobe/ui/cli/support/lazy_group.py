"""A group of commands, each imported only when it is called."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Mapping
from typing import Any, cast

import click

from costprobe.ui.cli.support.examples import ExampleGroup


class LazyGroup(ExampleGroup):
    """A group whose commands are imported when they are called.

    Shell completion and `--help` must be fast, and no command should load what only
    another needs.

    Args:
        modules: Where each command is, as "package.module:variable".
    """

    def __init__(self, *args: Any, modules: Mapping[str, str], **kwargs: Any) -> None:  # noqa: ANN401 - click's arguments
        super().__init__(*args, **kwargs)
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of the commands, in the order of the table."""
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Load a command; None if there is none of that name."""
        place = self._modules.get(cmd_name)
        if place is None:
            return None
        module, variable = place.split(":")
        # What an import creates stays: to collect meanwhile takes a tenth longer and frees nothing.
        gc.disable()
        try:
            return cast("click.Command", getattr(importlib.import_module(module), variable))
        finally:
            gc.enable()
