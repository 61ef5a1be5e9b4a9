"""Run a `costprobe` command in the test process; capture its output and exit code.

A child process takes half a second; `fakes.daemon` starts one if a test needs it.
"""

import click
from click.testing import CliRunner
from costprobe.ui.cli.main import main
from costprobe.ui.cli.support.command_classes import commands_of


def called(config, *words, code=0, env=None):
    """Run a command; return its result: `stdout`, `stderr`, and both as `output`.

    Args:
        config: Path of the configuration.
        words: The command and its arguments.
        code: The expected exit code; None for any. An unhandled exception has no exit code.
        env: Added to this process's environment while it runs.
    """
    done = CliRunner().invoke(main, ["--config", str(config), *map(str, words)], env=env)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert code in (None, done.exit_code), (words, done.exit_code, done.output)
    return done


def of_fleet(*words):
    """Return the words of a question about all hosts."""
    if words[0] in ("outliers", "change", "watch"):
        return ("fleet", *words)
    return (words[0], "--fleet", *words[1:])


def leaves(command=main, path=()):
    """Yield name and command of all that are not mere groups."""
    if not isinstance(command, click.Group) or (command.invoke_without_command and path):
        yield " ".join(path), command
    if isinstance(command, click.Group):
        for name, inner in commands_of(command).items():
            yield from leaves(inner, (*path, name))
