"""The built-in rules, as a section of the configuration page."""

from __future__ import annotations

from costprobe.alerts.rules.kinds import DEFAULT_RULES
from costprobe.alerts.rules.rule import RuleConfig
from costprobe.core.units import format_duration

from scripts.reference.markdown import code, table

_HEAD = """\
## Built-in rules

These rules apply without any `[[rule]]`. A `[[rule]]` of the same name replaces one, so it needs all of its keys;
`enabled = false` disables it. `[alerting] defaults = false` disables all of them.
"""
# Fields with columns of their own.
_COLUMNS = frozenset({"name", "kind", "group", "severity"})


def section() -> str:
    """Return the section of the page."""
    rows = [
        [code(rule.name), code(rule.kind), rule.severity, code(rule.group or rule.name), _own(rule)]
        for rule in DEFAULT_RULES
    ]
    return f"{_HEAD}\n{table(['name', 'kind', 'severity', 'incidents', 'keys'], rows)}\n"


def _own(rule: RuleConfig) -> str:
    """Return the keys that a rule sets, as in the file."""
    found = []
    for field, info in type(rule).model_fields.items():
        value = getattr(rule, field)
        if field not in rule.model_fields_set or field in _COLUMNS:
            continue
        shown = f'"{format_duration(value)}"' if field.endswith("_s") else _as_toml(value)
        found.append(code(f"{info.alias or field} = {shown}"))
    return ", ".join(found)


def _as_toml(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_as_toml(one) for one in value)}]"
    if isinstance(value, float):
        return f"{value:g}"
    return f'"{value}"' if isinstance(value, str) else str(value)
