"""The subset of JSON Schema that our schemas use; an unknown keyword is an error."""

import re

_ABOUT = {"$schema", "$id", "$defs", "title", "description"}
_TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "null": type(None),
}


def violations(value, schema, root=None, path="$"):
    """The violations of a schema by a document, one line each."""
    root = schema if root is None else root
    if "$ref" in schema:
        assert schema["$ref"].startswith("#/$defs/")
        return violations(value, root["$defs"][schema["$ref"].split("/")[-1]], root, path)
    found = []
    for keyword, wanted in schema.items():
        if keyword in _ABOUT:
            continue
        found += _KEYWORDS[keyword](value, wanted, schema, root, path)
    return found


def _type(value, wanted, _schema, _root, path):
    names = wanted if isinstance(wanted, list) else [wanted]
    for name in names:
        if isinstance(value, _TYPES[name]) and (isinstance(value, bool) <= (name == "boolean")):
            return []
    return [f"{path}: {value!r} is not of type {wanted}"]


def _properties(value, wanted, schema, root, path):
    if not isinstance(value, dict):
        return []
    found = []
    for name, inner in value.items():
        if name in wanted:
            found += violations(inner, wanted[name], root, f"{path}.{name}")
        elif schema.get("additionalProperties") is False:
            found.append(f"{path}: {name} is unknown")
    return found


def _additional(value, wanted, schema, root, path):
    if not isinstance(value, dict) or not isinstance(wanted, dict):
        return []
    known = schema.get("properties", {})
    more = {name: inner for name, inner in value.items() if name not in known}
    return [
        v for name, inner in more.items() for v in violations(inner, wanted, root, f"{path}.{name}")
    ]


def _items(value, wanted, _schema, root, path):
    if not isinstance(value, list):
        return []
    return [
        v for i, item in enumerate(value) for v in violations(item, wanted, root, f"{path}[{i}]")
    ]


def _unless(is_right, words):
    def check(value, wanted, _schema, _root, path):
        return [] if is_right(value, wanted) else [f"{path}: {value!r} {words} {wanted}"]

    return check


_KEYWORDS = {
    "type": _type,
    "properties": _properties,
    "additionalProperties": _additional,
    "items": _items,
    "required": _unless(
        lambda value, wanted: not isinstance(value, dict) or set(wanted) <= set(value), "lacks of"
    ),
    "enum": _unless(lambda value, wanted: value in wanted, "is none of"),
    "const": _unless(lambda value, wanted: value == wanted, "is not"),
    "pattern": _unless(
        lambda value, wanted: not isinstance(value, str) or re.search(wanted, value), "is not like"
    ),
    "minimum": _unless(
        lambda value, wanted: not isinstance(value, int | float) or value >= wanted, "is below"
    ),
    "maxItems": _unless(
        lambda value, wanted: not isinstance(value, list) or len(value) <= wanted, "has more than"
    ),
}
