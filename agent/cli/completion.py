"""`infercost completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

PROGRAM = "infercost"
VARIABLE = "_INFERCOST_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Prints the script that completes commands, options and names in a shell.

    \b
    infercost completion bash > ~/.local/share/bash-completion/completions/infercost
    infercost completion zsh > "${fpath[1]}/_infercost"
    infercost completion fish > ~/.config/fish/completions/infercost.fish
    """  # noqa: D301 - click's mark of lines that stay as they are
    found = get_completion_class(shell)
    if found is None:
        raise click.ClickException(f"this click completes nothing in {shell}")
    click.echo(found(context.find_root().command, {}, PROGRAM, VARIABLE).source())
