"""One name for one number: JSON uses the fields of the series, and units in all other names."""

from fakes.documents import SCHEMAS, schema_of
from fakes.number_names import DECLARED, is_field, is_vocabulary

NUMBERS = {"number", "integer"}


def numbers_in(schema, path=()):
    """Yield the path of every number, and of every exact amount, that a schema describes."""
    types = schema.get("type", ())
    types = {types} if isinstance(types, str) else set(types)
    is_amount = schema.get("x-unit", "").startswith("currency") and not types & {"object", "array"}
    if types & NUMBERS or is_amount:
        yield path
    for name, held in schema.get("properties", {}).items():
        yield from numbers_in(held, (*path, name))
    for keyword, mark in (("items", "[]"), ("additionalProperties", "*")):
        if isinstance(schema.get(keyword), dict):
            yield from numbers_in(schema[keyword], (*path, mark))
    for keyword in ("oneOf", "anyOf"):
        for alternative in schema.get(keyword, ()):
            yield from numbers_in(alternative, path)


# Every output is validated strictly against its schema, so that these are all keys.
def test_numbers_in_json_have_the_names_of_the_series():
    offenders = {
        f"{path.name.removesuffix('.schema.json')}: {'.'.join(names)}"
        for path in SCHEMAS.iterdir()
        for names in numbers_in(schema_of(path.name.removesuffix(".schema.json")))
        if not is_vocabulary(names)
    }
    assert "\n".join(sorted(offenders)) == ""


def test_declared_names_are_no_fields():
    assert {name for name in DECLARED if is_field(name)} <= {"symptoms", "value", "threshold"}
