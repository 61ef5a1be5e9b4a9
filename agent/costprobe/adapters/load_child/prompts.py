"""The prompts of requests: a fixed one, random ones of given lengths, or those of a file.

Each prompt begins with random digits, so that a prefix cache holds nothing of it but the beginning
of the chat template. A tokenizer splits runs of digits evenly, so that prompts have about the same
number of tokens.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any, Final, NamedTuple

from costprobe_probes.wire import ProbeConfigError, digest

from costprobe.core.outside import UnusableInputError, bounded_json, decoded_text, read_regular

SALT_DIGITS: Final = 12
MAX_LENGTH_TOKENS: Final = 1_000_000
MAX_FILE_BYTES: Final = 64 * 1024 * 1024
MAX_FILE_PROMPTS: Final = 10_000
MAX_ANSWER_TOKENS: Final = 65_536
# Prompts of so many words are sent to learn how the server counts tokens.
SAMPLE_WORDS: Final = (16, 144)
# Words of four letters: most tokenizers have a token for each, and bytes are counted evenly, too.
_TEXT: Final = (
    "that with have this will your from they know want been good much some time very when come"
    " here just like long make many over such take than them well were work year back call came"
    " each even find give hand high keep last left life live look made most move must name need"
    " next only open part play read same seem show side tell turn used what word"
)
_WORDS: Final = tuple(_TEXT.split())


class Prompt(NamedTuple):
    """What a request asks for.

    Attributes:
        text: The prompt.
        max_tokens: Longest answer in tokens.
        ignores_end: Whether the server should generate exactly that many.
    """

    text: str
    max_tokens: int
    ignores_end: bool = False


class Prompts:
    """Prompts of requests; thread-safe.

    Args:
        request: With prompt, vary_prompt and max_tokens; and `load` of a load curve, with tokens_in,
            tokens_out, prompts, shared_prefix, ignore_eos and seed.

    Raises:
        ProbeConfigError: The file cannot be used.
    """

    def __init__(self, request: Mapping[str, Any]) -> None:
        self._prompt, self._varies = request["prompt"], request["vary_prompt"]
        self._max_tokens = request["max_tokens"]
        load: Mapping[str, Any] = request.get("load") or {}
        self._tokens_in, self._tokens_out = load.get("tokens_in"), load.get("tokens_out")
        self._shared = load.get("shared_prefix") or 0.0
        self._ignores_end = bool(load.get("ignore_eos")) and self._tokens_out is not None
        path = load.get("prompts")
        self._file = None if path is None else read_prompts(path, self._max_tokens)
        self._rng = Random(load.get("seed", 0))  # noqa: S311 - lengths, no secret
        self._lock = Lock()
        self._tokens_per_word, self._other_tokens = 1.0, 0.0

    def facts(self) -> dict[str, str]:
        """Return the identity of the probe's prompts.

        The lengths of a load curve are none of it: each point has them as figures, and the runs of
        the probe have the same identity.
        """
        return {
            "prompt": digest(self._prompt.encode()),
            "prompt_varies": str(self._varies),
            "max_tokens": str(self._max_tokens),
        }

    def next(self) -> Prompt:
        """Return the prompt of the next request."""
        with self._lock:
            max_tokens = self._max_tokens
            if self._file is not None:
                text, max_tokens = self._rng.choice(self._file)
                text = self._salted(text)
            elif self._tokens_in is not None:
                text = self._of_tokens(draw_length(self._tokens_in, self._rng))
            else:
                text = self._salted(self._prompt)
            if self._tokens_out is not None:
                max_tokens = min(draw_length(self._tokens_out, self._rng), MAX_ANSWER_TOKENS)
        return Prompt(text, max_tokens, self._ignores_end)

    def calibrate(self, count: Callable[[Prompt], int | None]) -> None:
        """Learn how many tokens the server counts for a word, and for all but the words.

        Without counts of the server a word is taken as a token.

        Args:
            count: Sends a prompt and returns the server's count of its tokens; None without one.
        """
        if self._tokens_in is None:
            return
        few, many = SAMPLE_WORDS
        first, second = (count(Prompt(self._of_words(words), 1)) for words in SAMPLE_WORDS)
        if first is not None and second is not None and second > first:
            self._tokens_per_word = (second - first) / (many - few)
            self._other_tokens = first - few * self._tokens_per_word

    def _of_tokens(self, tokens: int) -> str:
        return self._of_words(round((tokens - self._other_tokens) / self._tokens_per_word))

    def _of_words(self, count: int) -> str:
        count = max(count, 1)
        shared = round(self._shared * count)
        # The same sequence in each request.
        words = Random(0)  # noqa: S311 - text
        before = words.choices(_WORDS, k=shared)
        after = self._rng.choices(_WORDS, k=count - shared)
        return " ".join([*before, *([_salt()] if self._varies else []), *after])

    def _salted(self, text: str) -> str:
        if not self._varies:
            return text
        shared = int(self._shared * len(text))
        return f"{text[:shared]}{_salt()}\n{text[shared:]}"


def draw_length(spec: Mapping[str, Any], rng: Random) -> int:
    """Return a length of a prompt or an answer, of at least one token.

    Args:
        spec: `kind` and its parameters in tokens: "fixed" with `value`; "uniform" with `low` and
            `high`, both included; "normal" with `mean` and `sd`; "lognormal" with `median`, and
            `sigma`, the standard deviation of the logarithm.
        rng: Source of randomness.
    """
    kind = spec["kind"]
    if kind == "fixed":
        value = float(spec["value"])
    elif kind == "uniform":
        value = float(rng.randint(int(spec["low"]), int(spec["high"])))
    elif kind == "normal":
        value = rng.gauss(spec["mean"], spec["sd"])
    else:
        value = rng.lognormvariate(math.log(spec["median"]), spec["sigma"])
    return int(min(max(round(value), 1), MAX_LENGTH_TOKENS))


def read_prompts(path: str, max_tokens: int) -> list[tuple[str, int]]:
    """Read a file of prompts: one JSON object a line, with `prompt` and, if known, `output_tokens`.

    Args:
        path: The file.
        max_tokens: Longest answer to a prompt without `output_tokens`.

    Returns:
        Each prompt with the longest answer in tokens.

    Raises:
        ProbeConfigError: It cannot be read, is too large, or a line is malformed.
    """
    where = f"load.prompts {path}"
    try:
        text = decoded_text(read_regular(Path(path), MAX_FILE_BYTES + 1), MAX_FILE_BYTES)
    except OSError as error:
        raise ProbeConfigError(f"{where}: cannot be read ({error.strerror})") from None
    except UnusableInputError as error:
        raise ProbeConfigError(f"{where}: {error}") from None
    lines = [line for line in text.split("\n") if line.strip()]
    if not 0 < len(lines) <= MAX_FILE_PROMPTS:
        raise ProbeConfigError(
            f"{where}: has {len(lines)} prompts; write 1 to {MAX_FILE_PROMPTS}, one a line"
        )
    return [_parsed(line, number, where, max_tokens) for number, line in enumerate(lines, 1)]


def _parsed(line: str, number: int, where: str, max_tokens: int) -> tuple[str, int]:
    try:
        entry = bounded_json(line)
    except UnusableInputError:
        entry = None
    prompt = entry.get("prompt") if isinstance(entry, dict) else None
    if not isinstance(prompt, str) or not prompt:
        raise ProbeConfigError(f'{where}, prompt {number}: write {{"prompt": "text"}}')
    tokens = entry.get("output_tokens", max_tokens)
    if type(tokens) is not int or not 0 < tokens <= MAX_ANSWER_TOKENS:
        raise ProbeConfigError(
            f"{where}, prompt {number}: output_tokens is a number from 1 to {MAX_ANSWER_TOKENS}"
        )
    return prompt, tokens


def _salt() -> str:
    return f"{secrets.randbelow(10**SALT_DIGITS):0{SALT_DIGITS}}"
