"""The pages of the documentation, their code blocks and commands, and a terminal to run these."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import chdir, suppress
from pathlib import Path

from click.testing import CliRunner
from costprobe.ui.cli.main import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BIN = Path(sys.executable).parent
TIMEOUT_S = 240.0
_BLOCK = re.compile(
    r'^```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$',
    re.DOTALL | re.MULTILINE,
)


def pages():
    """Return all pages of the site, and the README."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def page_name(path):
    return str(path.relative_to(ROOT))


def section(page, heading):
    """Return a page's text below a heading, up to the next of its level or above."""
    text = (DOCS / page).read_text()
    marks, _, _ = heading.partition(" ")
    _, found, rest = text.partition(f"\n{heading}\n")
    assert found, f"{page} has no heading {heading!r} any more"
    return re.split(rf"^#{{1,{len(marks)}}} ", rest, flags=re.MULTILINE)[0]


def blocks(text, language):
    """Return the code blocks of a language, in order: text by title, or by number."""
    found = [m for m in _BLOCK.finditer(text) if m["language"] == language]
    return {m["title"] or number: m["text"] for number, m in enumerate(found)}


def commands(text):
    """Return the lines that a reader types, in order."""
    return [line for block in blocks(text, "sh").values() for line in block.splitlines() if line]


def replaced(text, changes):
    """Return a text with replacements for a test; each must match."""
    for old, new in changes.items():
        assert old in text, f"{old!r} is not on the page any more"
        text = text.replace(old, str(new))
    return text


def run(line, folder, *, codes=(0,), env=()):
    """Run a command of a page in this process; return its output.

    Args:
        line: The command as the page has it.
        folder: Its working directory.
        codes: The exit codes that it may end with.
        env: Added to this process's environment.
    """
    words = shlex.split(line)
    assert words[0] == "costprobe", line
    environ = {"XDG_STATE_HOME": str(folder / "state"), **dict(env)}
    with chdir(folder):
        done = CliRunner().invoke(main, words[1:], env=environ, catch_exceptions=False)
    assert done.exit_code in codes, (line, done.output)
    return done.output


class Terminal:
    """A separate shell, in which background jobs keep their numbers.

    Args:
        folder: Its working directory.
    """

    def __init__(self, folder):
        self.folder = folder
        environ = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
        self._shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=folder,
            env={**environ, "XDG_STATE_HOME": str(folder / "state")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def type(self, line):
        """Run a line to its end and return its output; its exit code must be 0."""
        self._shell.stdin.write(f'{line}\necho "--- done $?"\n')
        self._shell.stdin.flush()
        printed = []
        for answer in self._shell.stdout:
            if answer.startswith("--- done "):
                assert answer == "--- done 0\n", (line, "".join(printed))
                return "".join(printed)
            printed.append(answer)
        raise AssertionError(f"the shell ended at {line!r}: {''.join(printed)}")

    def until(self, name, words):
        """Wait until a file contains a text; return its content."""
        ends_s = time.monotonic() + TIMEOUT_S
        file = self.folder / name
        while words not in (text := file.read_text() if file.exists() else ""):
            assert time.monotonic() < ends_s, f"{words!r} never came into {name}: {text}"
            time.sleep(0.2)
        return text

    def close(self):
        """Stop the shell and every process that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGTERM)
        self._shell.stdin.close()
        self._shell.wait(30)
        self._shell.stdout.close()
