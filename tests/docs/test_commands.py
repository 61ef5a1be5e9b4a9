"""Every command on every page and in every message exists with its options, and every TOML block is valid."""

import re
import shlex
import tomllib
from pathlib import Path

from click.testing import CliRunner
from costprobe.configuration import parse
from costprobe.core.config.load import ConfigError
from costprobe.ui.cli.main import main
from docs_pages import DOCS, blocks, page_name, pages

LANGUAGES = ("sh", "console", "bash")
# Tasks of InfluxDB with our name in theirs.
TASKS = ("hourly", "deadman")


def parted(line):
    """Return the words of each command of a line, without redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&<>")
    lexer.whitespace_split = True
    words, is_file = [], False
    for token in lexer:
        if token[0] in "<>":
            is_file = True
        elif token[0] in ";|&":
            yield words
            words, is_file = [], False
        elif is_file:
            is_file = False
        else:
            words.append(token)
    yield words


def typed(path):
    """Return the commands of a page, as (line, words after `costprobe`)."""
    text = path.read_text()
    for language in LANGUAGES:
        for block in blocks(text, language).values():
            for line in block.replace("\\\n", " ").splitlines():
                if language == "console" and not line.startswith("$ "):
                    continue  # output
                bare = re.sub(r"^\$ |\s#.*$", "", line)
                for words in parted(bare):
                    names = [i for i, w in enumerate(words) if w.rpartition("/")[2] == "costprobe"]
                    follows = [i for i in names if i in (0, 1) or words[i - 1] in ("--", "sudo")]
                    if follows:
                        yield line, words[follows[0] + 1 :]


def mentioned(path):
    """Return the commands that the sentences of a page or the texts of a module name, as (text, words after `costprobe`)."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\{[^{}]*\}", "NAME", text)
    for named in re.findall(r"`(?:sudo )?costprobe ([a-z][^`|]*)`", text):
        if named not in TASKS:
            yield named, named.split()


def test_every_command_exists_with_its_options():
    """With --help a command parses its options, and does nothing."""
    unknown, count = [], 0
    modules = (DOCS.parent / "agent").rglob("*.py")
    for path in (*pages(), *modules):
        written = mentioned(path) if path.suffix == ".py" else (*typed(path), *mentioned(path))
        for line, words in written:
            count += 1
            done = CliRunner().invoke(main, [*words, "--help"])
            if done.exit_code or not done.output.startswith("Usage: "):
                unknown.append((str(path.relative_to(DOCS.parent)), line, done.output[-200:]))
    assert count > 60
    assert unknown == []


def test_every_toml_block_is_valid_and_each_guides_configuration_loads():
    guides = {DOCS.parent / "README.md", DOCS / "tutorial.md", *(DOCS / "howto").glob("*.md")}
    problems = []
    for path in pages():
        for text in blocks(path.read_text(), "toml").values():
            try:
                tomllib.loads(text)
                if path in guides:
                    parse(text, Path(path.name))
            except (ValueError, ConfigError) as error:
                problems.append((page_name(path), str(error)))
    assert problems == []
