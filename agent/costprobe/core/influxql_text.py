"""Names and texts in InfluxQL.

Source: https://docs.influxdata.com/influxdb/v1/query_language/spec.
"""

from __future__ import annotations


def identifier(name: str) -> str:
    """Quote the name of a database, measurement, tag or field."""
    return '"' + _escaped(name, '"') + '"'


def literal(text: str) -> str:
    """Quote a text."""
    return "'" + _escaped(text, "'") + "'"


def _escaped(text: str, quote: str) -> str:
    return text.replace("\\", "\\\\").replace(quote, f"\\{quote}").replace("\n", "\\n")
