"""Override keys of a configuration on the command line: `--set detection.least_effect=5%`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from costprobe.alerts.rules.kinds import effective_rules
from costprobe.configuration import Config, validated
from costprobe.core.config.load import ConfigError, as_toml_tables
from costprobe.core.config.location import MAX_FILE_BYTES
from costprobe.core.outside import bounded_toml
from costprobe.ui.cli.support.loaded_config import bad_input

COMMAND_LINE = Path("--set")


def overridden(config: Config, settings: Sequence[str]) -> Config:
    """Return a configuration with some keys changed.

    Args:
        config: The configuration in force.
        settings: `section.key=value` each; a table of a list is selected by its name, as in
            `rule.drift.at_least=5%`, also a built-in rule.

    Raises:
        click.ClickException: A key or a value is wrong; exit code 2.
    """
    if not settings:
        return config
    tables = as_toml_tables(config)
    # Add the built-in rules to the file's rules, so that a key of one can be changed.
    rules = effective_rules(config.rule, use_defaults=config.alerting.defaults)
    tables["rule"] = as_toml_tables(Config(rule=tuple(rules)))["rule"]
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise bad_input(f"--set {setting!r}: write KEY=VALUE, such as detection.warm_up=50")
        _set(tables, path.strip().split("."), _value(text.strip()), setting)
    try:
        return validated(tables, COMMAND_LINE)
    except ConfigError as error:
        raise bad_input(str(error)) from error


def _set(tables: dict[str, Any], path: Sequence[str], value: Any, setting: str) -> None:  # noqa: ANN401 - any TOML value
    *sections, key = path
    place: Any = tables
    for section in sections:
        if isinstance(place, list):
            names = [str(table.get("name")) for table in place]
            if section not in names:
                raise bad_input(
                    f"--set {setting!r}: unknown section {section!r}; write one of {', '.join(names)}"
                )
            place = place[names.index(section)]
        else:
            place = place.setdefault(section, {})
        if not isinstance(place, dict | list):
            raise bad_input(f"--set {setting!r}: {section} is not a section")
    if not isinstance(place, dict):
        raise bad_input(f"--set {setting!r}: add the name, as in rule.drift.at_least=5%")
    place[key] = value


def _value(text: str) -> Any:  # noqa: ANN401 - any TOML value
    """Parse a TOML value; other text is a string."""
    try:
        return bounded_toml(f"value = {text}", MAX_FILE_BYTES)["value"]
    except ValueError:  # also for integers of more than 4,300 digits
        return text
