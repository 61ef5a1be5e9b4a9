"""`costprobe completion`: the completion script of a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from costprobe.ui.cli.support.command_classes import ExampleCommand

PROGRAM = "costprobe"
VARIABLE = "_COSTPROBE_COMPLETE"


@click.command(
    cls=ExampleCommand,
    examples=("costprobe completion bash  # print the completion script for bash",),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script that completes commands, options and names in a shell.

    \b
    costprobe completion bash > ~/.local/share/bash-completion/completions/costprobe
    costprobe completion zsh > "${fpath[1]}/_costprobe"
    costprobe completion fish > ~/.config/fish/completions/costprobe.fish
    """  # noqa: D301 - click's mark of lines that are not wrapped
    completion = get_completion_class(shell)
    if completion is None:
        raise click.ClickException(f"this version of click has no completion for {shell}")
    click.echo(completion(context.find_root().command, {}, PROGRAM, VARIABLE).source())
