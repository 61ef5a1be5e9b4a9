"""The measurement and field that a rule compares, checked against the series schema."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from costprobe.core.config.fields import Name
from costprobe.core.config.suggest import nearest
from costprobe.core.schema import SCHEMA


def _known_measurement(name: str) -> str:
    if name not in SCHEMA:
        raise ValueError(f"write one of {', '.join(SCHEMA)}")
    return name


MeasurementName = Annotated[Name, AfterValidator(_known_measurement)]


def numeric_field(measurement: str | None, field: str) -> str:
    """Return the name of a numeric field of a measurement.

    Args:
        measurement: The measurement; None if it is invalid, so that any field is accepted.
        field: The configured field.

    Raises:
        ValueError: The measurement has no such field, or its values are text.
    """
    fields = SCHEMA[measurement].fields if measurement is not None else {field: float}
    if field not in fields:
        suggestion = nearest(field, fields)
        hint = f'did you mean "{suggestion}"?' if suggestion else f"it has {', '.join(fields)}"
        raise ValueError(f"{measurement} has no field {field!r}; {hint}")
    if fields[field] is str:
        raise ValueError(f"{field} is text; a rule compares numbers")
    return field
