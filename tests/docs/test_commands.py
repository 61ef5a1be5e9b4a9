"""Every command on every page is one that there is, with options that it has, and so is its TOML."""

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest
from docs_pages import DOCS, blocks, page_name, pages

from agent.cli.main import main
from agent.config_file import parse

LANGUAGES = ("sh", "console", "bash")


def parted(line):
    """The words of each command of a line, without the files that it reads and writes."""
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
    """The commands of a page, as words behind `infercost`."""
    text = path.read_text()
    for language in LANGUAGES:
        for block in blocks(text, language).values():
            for line in block.replace("\\\n", " ").splitlines():
                if language == "console" and not line.startswith("$ "):
                    continue  # what the command says
                bare = re.sub(r"^\$ |\s#.*$", "", line)
                for words in parted(bare):
                    names = [i for i, w in enumerate(words) if w.rpartition("/")[2] == "infercost"]
                    follows = [i for i in names if i in (0, 1) or words[i - 1] in ("--", "sudo")]
                    if follows:
                        yield line, words[follows[0] + 1 :]


@pytest.mark.parametrize("path", pages(), ids=page_name)
def test_commands_are_there(path):
    for line, words in typed(path):
        check(main, words, line)


def check(command, words, line):
    """Walks from a command to the one that is meant; each option must be one of those passed."""
    context = click.Context(command)
    known = {name: option for option in command.params for name in option.opts}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        name, _, value = word.partition("=")
        if word.startswith("-") and word != "-":
            assert name in known or name in ("--help", "-h"), f"{line}: no option {name}"
            option = known.get(name)
            if option is not None and not option.is_flag and not value:
                waiting.pop(0)
        elif isinstance(command, click.Group):
            inner = command.get_command(context, word)
            assert inner is not None, f"{line}: no command {word}"
            return check(inner, waiting, line)
    assert not isinstance(command, click.Group) or command.invoke_without_command, line
    return None


def test_there_are_commands_to_check():
    assert sum(1 for path in pages() for _ in typed(path)) > 60


@pytest.mark.parametrize(
    "line", ["probe --swep", "sink retri", "influx setup --apply=1 --keeep 3d"]
)
def test_the_check_finds_what_is_not_there(line):
    with pytest.raises(AssertionError, match=r"no (option|command)"):
        check(main, shlex.split(line), line)


GUIDES = [DOCS / "tutorial.md", *sorted((DOCS / "howto").glob("*.md"))]


@pytest.mark.parametrize("path", GUIDES, ids=page_name)
def test_each_configuration_of_a_guide_is_taken(path):
    for text in blocks(path.read_text(), "toml").values():
        parse(text, Path(path.name))


@pytest.mark.parametrize("path", pages(), ids=page_name)
def test_all_toml_is_toml(path):
    for text in blocks(path.read_text(), "toml").values():
        tomllib.loads(text)
