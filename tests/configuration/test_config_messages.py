"""Each option of the configuration, broken in every way: the error names file, key and fix."""

import random
import re
import tomllib
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import get_type_hints

from costprobe.configuration import Config, validated
from costprobe.core.config.load import ConfigError
from fakes.cases import check_all
from fakes.sizes import SEED, sized
from pydantic import BaseModel

FILE = Path("costprobe.toml")
WRONG = {
    "true": True,
    "number": Decimal("1.5"),
    "text": "soon?",
    "date": date(2026, 1, 1),
    "time": datetime(2026, 1, 1, tzinfo=UTC),
    "list": [{}],
    "list of a list": [[1]],
    "table": {"a": {}},
    "negative": -1,
    "huge": 10**15,
    "negative duration": "-1s",
    "short duration": "0.0001ms",
    "long duration": "9999y",
    "zero": 0,
    "not a number": Decimal("nan"),
    "empty text": "",
    "empty list": [],
    "empty table": {},
    "line break": "a\nb",
    "port": "http://h:65536",
}
RAW = re.compile(
    r"Input should|Value error|String should|should (be|have|match)|Field required|Extra inputs"
    r"|valid (string|number|integer|list|dict|tuple|date|boolean|path)|pydantic|type=|is not valid$"
)
FIX = re.compile(
    r"such as|write |add |did you mean|known here|must be|must have|or (more|fewer)|must not|give |remove|use "
    r"|choose|name |there (is|are)| is (a|one of|an) |has up to|at most|at least|goes into|need"
)


def sections(hint):
    """Section classes in an annotation, outermost only."""
    if isinstance(hint, type):
        return [hint] if issubclass(hint, BaseModel) else []
    return [found for one in getattr(hint, "__args__", ()) for found in sections(one)]


NEEDED = tomllib.loads(Path(__file__).with_name("needed.toml").read_text(), parse_float=Decimal)


def required(section):
    """A table with an example of each required key."""
    return NEEDED["more"].get(section.__name__, {}) | {
        field.alias or name: field.examples[0]
        for name, field in section.model_fields.items()
        if field.is_required()
    }


def tables():
    """Path in messages, section class, and a function from its table to the whole file."""
    for name, hint in get_type_hints(Config, include_extras=True).items():
        if name not in Config.model_fields:
            continue
        is_list = isinstance(Config.model_fields[name].default, tuple)
        for section in sections(hint):

            def wrap(table, name=name, is_list=is_list):
                return {**NEEDED["beside"].get(name, {}), name: [table] if is_list else table}

            yield from _with_inner(f"{name}[0]" if is_list else name, section, wrap)


def _with_inner(path, section, wrap):
    yield path, section, wrap
    for field, hint in get_type_hints(section, include_extras=True).items():
        info = section.model_fields.get(field)
        for inner in sections(hint) if info is not None else ():
            key = info.alias or field
            is_list = "tuple" in str(hint)
            outer = {**required(section), **NEEDED["around"].get(inner.__name__, {})}

            def wrapped(table, key=key, outer=outer, is_list=is_list):
                return wrap({**outer, key: [table] if is_list else table})

            yield from _with_inner(f"{path}.{key}{'[0]' if is_list else ''}", inner, wrapped)


def broken():
    rng = random.Random(SEED)
    for path, section, wrap in tables():
        good = required(section)
        try:
            validated(wrap(good), FILE)
        except ConfigError as error:
            raise AssertionError(f"{section.__name__}: add to needed.toml: {error}") from error
        for name, field in section.model_fields.items():
            key = field.alias or name
            yield path, key, "missing", wrap({k: v for k, v in good.items() if k != key})
            for kind in rng.sample(list(WRONG), min(sized(3, 200), len(WRONG))):
                yield path, key, kind, wrap({**good, key: WRONG[kind]})
        yield path, "unknown", "unknown", wrap({**good, "unknown": 1})


def test_every_broken_option_is_named_with_a_fix():
    rejected = []

    def check(path, key, kind, raw):
        try:
            validated(raw, FILE)
        except ConfigError as error:
            rejected.append((path, key, kind))
            problems = error.problems
        else:
            return
        for problem in problems:
            place, _, words = problem.partition(": ")
            assert not RAW.search(words), problem
            assert FIX.search(words), f"no fix: {problem}"
            assert place.split(".")[0].split("[")[0] in Config.model_fields, problem
        named = [one for one in problems if one.startswith(path) and key in one]
        assert named or kind == "missing" or key in {"plan", "kind", "api"}, problems

    cases = list(broken())
    check_all(check, cases)
    assert len(rejected) > len(cases) / 2
