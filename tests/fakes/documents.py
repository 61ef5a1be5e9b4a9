"""Validation of a command's JSON against its schema, or, with COSTPROBE_RECORD=1, the record of it."""

import json
import os

from jsonschema import Draft202012Validator

from scripts.reference.schemas import file_of, structure_of, types_of

KINDS = {
    bool: "boolean",
    dict: "object",
    float: "number",
    int: "integer",
    list: "array",
    str: "string",
}
ORDER = ["boolean", "integer", "number", "string", "array", "object", "null"]
HOW = "if that is meant: run this test with COSTPROBE_RECORD=1, then python -m scripts.reference"


def strict(schema):
    """Return the schema with additional keys disallowed."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if isinstance(made.get("properties"), dict):
        made.setdefault("additionalProperties", False)
    return made


def faults(schema, document):
    return [
        f"{error.json_path}: {error.message}"
        for error in Draft202012Validator(strict(schema)).iter_errors(document)
    ]


def faulty(schema, documents):
    return [fault for document in documents for fault in faults(schema, document)]


def widened(schema, value):
    """Return a schema that a value fits, too: of further types, with further keys, fewer of them required."""
    made = dict(schema)
    if "oneOf" in schema:
        nearest = min(schema["oneOf"], key=lambda one: len(faults(one, value)))
        made["oneOf"] = [widened(one, value) if one is nearest else one for one in schema["oneOf"]]
        return made
    if faults({key: held for key, held in schema.items() if key in ("type", "enum")}, value):
        kinds = {*types_of(schema), KINDS.get(type(value), "null")}
        kinds -= {"integer"} if "number" in kinds else set()
        made["type"] = sorted(kinds, key=ORDER.index)
        if "enum" in schema:
            made["enum"] = [*schema["enum"], value]
    elif "type" not in schema:
        made["type"] = KINDS.get(type(value), "null")
    for one in value if isinstance(value, list) else ():
        made["items"] = widened(made.get("items", {}), one)
    return with_keys(made, value) if isinstance(value, dict) else made


def with_keys(schema, value):
    """Return the schema of a table that has the keys of a value, too; a new key is required."""
    known, others = dict(schema.get("properties", {})), schema.get("additionalProperties")
    required = [*schema.get("required", ())]
    for key, held in value.items():
        if key not in known and others:
            others = widened(others, held)
            continue
        if key not in known:
            required.append(key)
        known[key] = widened(known.get(key, {}), held)
    made = {**schema, **({"additionalProperties": others} if others else {})}
    if known:
        made |= {"required": [key for key in required if key in value], "properties": known}
    return made


def checked(name, text):
    """Return the documents that a command printed, after validation against its schema."""
    assert "\x1b" not in text
    schema = structure_of(name)
    parts = text.splitlines() if schema.get("x-lines") else [text]
    documents = [json.loads(part) for part in parts]
    if os.environ.get("COSTPROBE_RECORD") and (not schema or faulty(schema, documents)):
        # Twice: a key that only later members of a new list have is not required.
        for document in [*documents, *documents]:
            schema = widened(schema, document)
        file_of(name).write_text(json.dumps({"title": f"costprobe {name} --json", **schema}))
    assert schema, f"{name} --json has no schema; {HOW}"
    wrong = faulty(schema, documents)
    assert not wrong, f"{name} --json: {wrong}; {HOW}"
    committed = Draft202012Validator(json.loads(file_of(name).read_text()))
    assert all(committed.is_valid(document) for document in documents)
    assert documents
    assert all(documents)
    return documents if schema.get("x-lines") else documents[0]
