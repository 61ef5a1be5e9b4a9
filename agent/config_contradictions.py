"""Errors between the keys of a configuration file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agent.config_service_contradictions import service_contradictions
from agent.series import SCHEMA
from agent.spelling import nearest

# Sections whose tables need names of their own, with the name of one that gives none.
NAMED = (
    ("probe", None),
    ("service", None),
    ("sink", "influxdb"),
    ("rule", None),
    ("maintenance", None),
    ("notifier", None),
    ("budget", None),
)
_OWN_TAGS = {"host", "time"}.union(*(measurement.tags for measurement in SCHEMA.values()))


def contradictions(raw: Mapping[str, Any]) -> Iterable[str]:
    """Errors between keys, looked for in the raw text so that they are named in the same pass."""
    for section, default in NAMED:
        seen: set[str] = set()
        for index, table in enumerate(_tables(raw, section)):
            name = table.get("name", default)
            if isinstance(name, str) and name in seen:
                yield f"{section}[{index}].name: {name!r} is taken; give each {section} its own"
            seen.add(str(name))
    host = raw.get("host")
    labels = host.get("labels") if isinstance(host, dict) else None
    for label in labels if isinstance(labels, dict) else ():
        if label in _OWN_TAGS:
            yield f"host.labels.{label}: is a tag of infercost's own; choose another name"
    currencies = {str(plan.get("currency", "USD")) for plan in _tables(raw, "price")}
    electricity = raw.get("electricity")
    if isinstance(electricity, dict) and currencies:
        currency = str(electricity.get("currency", "USD"))
        if currencies != {currency}:
            yield (
                f"electricity.currency: {currency} cannot be added to prices in"
                f" {', '.join(sorted(currencies))}; use one currency"
            )
    elif len(currencies) > 1:
        yield f"price: {' and '.join(sorted(currencies))} cannot be added; use one currency"
    yield from _foreign_budgets(raw)
    yield from service_contradictions(_tables(raw, "service"))
    yield from _double_plans(raw)
    yield from _unknown_notifiers(raw)
    yield from _unknown_fields(raw)


def _foreign_budgets(raw: Mapping[str, Any]) -> Iterable[str]:
    """Budgets in a currency that no price is in: they would stay at nothing for ever."""
    priced = {str(plan.get("currency", "USD")) for plan in _tables(raw, "price")}
    services = {str(service.get("name")) for service in _tables(raw, "service")}
    rules = [(i, r) for i, r in enumerate(_tables(raw, "rule")) if r.get("kind") == "budget"]
    budgets = list(enumerate(_tables(raw, "budget")))
    for section, tables in (("rule", rules), ("budget", budgets)):
        for index, table in tables:
            currency = str(table.get("currency", "USD"))
            if priced and currency not in priced:
                yield (
                    f"{section}[{index}].currency: prices are in {', '.join(sorted(priced))}, and"
                    f" {currency} is never added to them; write that one"
                )
    for index, budget in budgets:
        service = budget.get("service")
        if services and service is not None and str(service) not in services:
            there = ", ".join(sorted(services))
            yield f"budget[{index}].service: no service is called {service!r}; there are {there}"


def _double_plans(raw: Mapping[str, Any]) -> Iterable[str]:
    seen: dict[tuple[str, str, str], int] = {}
    names: set[str] = set()
    for index, plan in enumerate(_tables(raw, "price")):
        if plan.get("plan") == "spot":
            name = str(plan.get("name", "spot"))
            if name in names:
                yield f"price[{index}].name: {name!r} is taken; give each spot plan its own"
            names.add(name)
        per = plan.get("per") or ("host" if plan.get("device") is None else "device")
        identity = (str(plan.get("device")), str(plan.get("valid_from")), str(per))
        if identity in seen:
            yield (
                f"price[{index}].valid_from: price[{seen[identity]}] holds from the same day for"
                " the same device; give each plan its own"
            )
        seen[identity] = index


def _unknown_notifiers(raw: Mapping[str, Any]) -> Iterable[str]:
    known = {str(table.get("name")) for table in _tables(raw, "notifier")}
    for index, rule in enumerate(_tables(raw, "rule")):
        wanted = rule.get("notify")
        for name in wanted if isinstance(wanted, list) else ():
            if str(name) not in known:
                there = f"there are {', '.join(sorted(known))}" if known else "there is none"
                yield f"rule[{index}].notify: no notifier is called {name!r}; {there}"


def _unknown_fields(raw: Mapping[str, Any]) -> Iterable[str]:
    """Series and fields that no row will ever have: such a rule would be silent for ever."""
    for index, rule in enumerate(_tables(raw, "rule")):
        measurement, field = rule.get("measurement"), rule.get("field")
        if rule.get("kind") == "slo":
            measurement, field = "probe", rule.get("field", "latency_p90_ms")
        if isinstance(measurement, str) and measurement not in SCHEMA:
            yield f"rule[{index}].measurement: write one of {', '.join(SCHEMA)}"
        elif isinstance(measurement, str) and isinstance(field, str):
            fields = SCHEMA[measurement].fields
            if field not in fields:
                near = nearest(field, fields)
                hint = f'did you mean "{near}"?' if near else f"it has {', '.join(fields)}"
                yield f"rule[{index}].field: {measurement} has no field {field!r}; {hint}"
            elif fields[field] is str:
                yield f"rule[{index}].field: {field} is text; a rule compares numbers"


def _tables(raw: Mapping[str, Any], section: str) -> list[Mapping[str, Any]]:
    tables = raw.get(section)
    return (
        [table for table in tables if isinstance(table, dict)] if isinstance(tables, list) else []
    )
