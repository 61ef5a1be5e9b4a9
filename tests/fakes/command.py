"""Run a `costprobe` command in the test process; capture its output and exit code.

A process of its own costs half a second each; `fakes.daemon` starts those where it matters.
"""

from click.testing import CliRunner
from costprobe.ui.cli.main import main


def called(config, *words, code=0, env=None):
    """The result of a command: `stdout`, `stderr`, and both as `output`.

    Args:
        config: Path of the configuration.
        words: The command and its arguments.
        code: The exit code that it must end with; None for any. An exception that it lets out is
            none.
        env: Added to this process's environment for its time.
    """
    done = CliRunner().invoke(main, ["--config", str(config), *words], env=env)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert code in (None, done.exit_code), (words, done.exit_code, done.output)
    return done
