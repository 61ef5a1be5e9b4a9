"""Which of the configured sinks a command is about."""

from __future__ import annotations

from agent.cli.settings import bad_input
from agent.config import Config, SinkConfig


def chosen_sink(config: Config, name: str | None) -> SinkConfig:
    """The sink of that name, or the only one.

    Args:
        config: What is configured.
        name: Name of a sink; None for the only one.

    Raises:
        click.ClickException: There is none, or several and none is named.
    """
    names = ", ".join(sink.name for sink in config.sink)
    if not config.sink:
        raise bad_input("no sink is configured; set [[sink]] with the database's address")
    if name is None and len(config.sink) > 1:
        raise bad_input(f"several sinks: {names}; name one with --sink")
    for sink in config.sink:
        if name in (None, sink.name):
            return sink
    raise bad_input(f"no sink {name!r}; there are {names}")
