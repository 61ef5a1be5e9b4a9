"""Render the page of the webhook's message, from its schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.reference.markdown import MADE, code, table

SCHEMA = Path(__file__).parents[2] / "docs" / "webhook.schema.json"
_HEAD = """\
# Webhook message

The body of each message, by [webhook.schema.json](../webhook.schema.json). {about}
Signature and answers: [webhook](../webhook.md).
"""


def render() -> str:
    """Return the page."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    lines = [MADE, _HEAD.format(about=schema["description"]), "## The message", ""]
    lines += [_keys(schema, schema["$defs"]), ""]
    for name, inner in schema["$defs"].items():
        if "properties" in inner:
            lines += [f"## {code(name)}", "", _keys(inner, schema["$defs"]), ""]
    return "\n".join(lines).rstrip() + "\n"


def without_words() -> list[str]:
    """Return keys without a description."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    tables = {"": schema, **schema["$defs"]}
    return [
        f"{table_name} {name}".strip()
        for table_name, inner in tables.items()
        for name, found in inner.get("properties", {}).items()
        if not {**_target(found, schema["$defs"]), **found}.get("description")
    ]


def _keys(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> str:
    required = set(schema.get("required", ()))
    rows = []
    for name, found in schema["properties"].items():
        kind, words = _kind(found, defs), found.get("description", "")
        target = _target(found, defs)
        if target is not found:
            words = " ".join(part for part in (words, target.get("description", "")) if part)
        rows.append([code(name), kind, "always" if name in required else "may be absent", words])
    return table(["key", "is", "there", "meaning"], rows)


def _kind(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> str:
    name = schema.get("$ref", "").rpartition("/")[2]
    target = _target(schema, defs)
    if name:
        return f"[{name}](#{name})" if "properties" in target else _kind(target, defs)
    if "const" in schema or "enum" in schema:
        values = schema["enum"] if "enum" in schema else [schema["const"]]
        return ", ".join(code(json.dumps(value)) for value in values)
    if schema["type"] == "array":
        most = f", {schema['maxItems']} at most" if "maxItems" in schema else ""
        return f"list of: {_kind(schema['items'], defs)}{most}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"names to: {_kind(schema['additionalProperties'], defs)}"
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return " or ".join(kinds)


def _target(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the target of a reference, or the schema itself."""
    name = schema.get("$ref", "").rpartition("/")[2]
    return defs[name] if name else schema
