"""The built-in rules, as a part of the page of the configuration."""

from __future__ import annotations

from agent.alerting.defaults import DEFAULT_RULES
from agent.config_alerting import RuleConfig
from agent.units import format_duration
from scripts.reference.markdown import code, table

_HEAD = """\
## Built-in rules

They hold with no `[[rule]]` at all. One of the same name takes a rule's place, and needs all of its keys;
`enabled = false` in it switches it off. `[alerting] defaults = false` switches all of them off.
"""
# What the table tells in columns of its own.
_TOLD = frozenset({"name", "kind", "group", "severity"})


def section() -> str:
    """The section of the page."""
    rows = [
        [code(rule.name), code(rule.kind), rule.severity, code(rule.group or rule.name), _own(rule)]
        for rule in DEFAULT_RULES
    ]
    return f"{_HEAD}\n{table(['name', 'kind', 'severity', 'incidents', 'its keys'], rows)}\n"


def _own(rule: RuleConfig) -> str:
    """The keys that a rule sets, as the file would have them."""
    found = []
    for field, info in type(rule).model_fields.items():
        value = getattr(rule, field)
        if field not in rule.model_fields_set or field in _TOLD:
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
