"""Names of numbers in JSON: a field of the series, a name with its unit, or a declared count."""

from costprobe.core.schema import SCHEMA

from scripts.reference.words import Words

FIELDS = {name for measurement in SCHEMA.values() for name in measurement.fields}
WORDS = Words()
# Values of a table that is named by a field: `latency_p50_ms.value`.
SUMMARY = {"value", "iqr", "samples", "low", "high"}


def is_vocabulary(path):
    """Return whether the last name of a path, such as ["models", "[]", "cost"], is in the vocabulary."""
    names = [part for part in path if part not in ("[]", "*")]
    if not names:
        return True
    name = names[-1]
    if name in SUMMARY and len(names) > 1 and path[-2] == names[-2] and is_field(names[-2]):
        return True
    return is_field(name) or name in WORDS.counts


def is_field(name):
    """Return whether a name is a field, or has a unit; `_before` is the same of the period before."""
    name = name.removesuffix("_before")
    return name in FIELDS or WORDS.unit_of((name,), {"type": "number"}) != ""


def numbers_of(document, path=()):
    """Yield the path of every number in a JSON document."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield from numbers_of(value, (*path, name))
    elif isinstance(document, list):
        for value in document:
            yield from numbers_of(value, (*path, "[]"))
    elif isinstance(document, int | float) and not isinstance(document, bool):
        yield path
