"""One name for one number: JSON uses the fields of the series, and units in all other names."""

from fakes.number_names import WORDS, is_field, is_vocabulary

from scripts.reference.schemas import documents, structures, types_of

NUMBERS = {"number", "integer"}


def is_number(schema):
    """Return whether a value, or what a list or a table of names holds, is a number or an exact amount."""
    held = schema.get("items", schema.get("additionalProperties"))
    if isinstance(held, dict):
        return is_number(held)
    return bool(NUMBERS & set(types_of(schema))) or schema.get("x-unit", "").startswith("currency")


# Every output is validated strictly against its schema, so that these are all keys.
def test_numbers_in_json_have_the_names_of_the_series():
    found = documents(structures(), WORDS)
    offenders = {
        ".".join((*place, name))
        for table, places in found.places.items()
        for name, schema in found.tables[table]["properties"].items()
        for place in places
        if is_number(schema) and not is_vocabulary((*place, name))
    }
    assert "\n".join(sorted(offenders)) == ""


def test_counts_are_keys_without_a_unit():
    tables = documents(structures(), WORDS).tables.values()
    keys = {key for table in tables for key in table["properties"]}
    of_the_page = {"base", "highs", "lows", "without_base"}
    assert {name for name in WORDS.counts if is_field(name) or name not in keys} <= {
        *of_the_page,
        "value",
    }
