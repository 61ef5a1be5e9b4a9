"""`costprobe prometheus`: rules for Prometheus."""

from __future__ import annotations

from importlib import resources

import click

from costprobe.ui.cli.support.command_classes import ExampleGroup
from costprobe.ui.cli.support.output import echo_file


@click.group(cls=ExampleGroup)
def command() -> None:
    """Print rules for Prometheus."""


@command.command(
    examples=("costprobe prometheus rules  # print rules for rule_files in prometheus.yml",),
)
def rules() -> None:
    """Print recording and alerting rules, in the format of Prometheus' rule files."""
    file = resources.files("costprobe.ui.prometheus") / "costprobe.rules.yml"
    echo_file(file.read_text(encoding="utf-8").splitlines())
