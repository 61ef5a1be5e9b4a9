"""Panels of services over several hosts: what their tokens cost, and the cost of each role.

The hosts that are selected do not restrict them: a part alone has no price.
"""

from __future__ import annotations

from costprobe.core.schema import GROUP_TAGS, PREFIX
from grafana_foundation_sdk.builders import table, timeseries

from scripts.dashboards.parts import graph
from scripts.dashboards.queries import PER_PANEL, Query, Tag
from scripts.dashboards.tables import joined, listing

GROUP, ROLE = GROUP_TAGS
# Roles with both kinds of tokens.
_BOTH = "all|worker"
PAID = ("currency",)
# Whole services: the rows of their models repeat what they contain.
WHOLE = (Tag("basis", "serving"), Tag("served_model", ""), Tag(GROUP, "", "!="))


def _sums(select: str, source: str, roles: str) -> str:
    """Return InfluxQL of sums of the members with some roles, by group."""
    money = (
        """"currency" =~ /^$currency$/ AND "basis" = 'serving' AND """ if source == "cost" else ""
    )
    return (
        f'SELECT {select} FROM "{source}" WHERE {money}"served_model" = \'\''  # noqa: S608 - constant text of this repository
        f' AND "{ROLE}" =~ /^({roles})$/ AND $timeFilter GROUP BY "{GROUP}"'
    )


def _increase(counter: str, roles: str) -> str:
    """Return PromQL of the same."""
    money = ',currency=~"$currency"' if counter.endswith("cost") else ""
    series = f'{PREFIX}service_{counter}_total{{{ROLE}=~"{roles}"{money}}}'
    return f"sum by ({GROUP}) (increase({series}[$__range]))"


def _column(name: str, *sources: str) -> str:
    """Return InfluxQL of a column: the sum of `x` of all sources, where it is above 0."""
    inner = ", ".join(f"({source})" for source in sources)
    return f'SELECT sum("x") AS "{name}" FROM {inner} WHERE "x" > 0 GROUP BY "{GROUP}"'  # noqa: S608 - as above


def _of_kind(kind: str, pool: str) -> tuple[str, str, str, str]:
    """Return cost and millions of tokens of input or of output, in InfluxQL and in PromQL.

    Args:
        kind: `in` or `out`.
        pool: Role of the members that have only this kind of tokens.
    """
    parts = [f"cost_tokens_{one}" for one in ("in", "out")]
    share = f'sum("cost_tokens_{kind}") / (sum("{parts[0]}") + sum("{parts[1]}"))'
    cost = _column(
        f"cost {kind}",
        _sums('sum("cost_total") AS "x"', "cost", pool),
        _sums(f'sum("cost_total") * {share} AS "x"', "cost", _BOTH),
    )
    counting = f"{pool}|{_BOTH}"
    tokens = _column(
        f"M tokens {kind}", _sums(f'sum("tokens_{kind}") / 1000000 AS "x"', "serving", counting)
    )
    both = " + ".join(_increase(f"tokens_{one}_cost", _BOTH) for one in ("in", "out"))
    divided = f"{_increase('cost', _BOTH)} * {_increase(f'tokens_{kind}_cost', _BOTH)}"
    # Two sums of a group have the same labels: `or` alone would take the first.
    promql_cost = (
        f"sum by ({GROUP}) ({_increase('cost', pool)} or"
        f' label_replace({divided} / (({both}) > 0), "of", "both", "", ""))'
    )
    return cost, tokens, promql_cost, f"{_increase(f'tokens_{kind}', counting)} / 1000000 > 0"


def prices(span: int) -> table.Panel:
    """Return the cost of a million tokens of each group in the range of the page."""
    columns, queries, quotients = {}, [], {}
    for kind, pool in (("in", "prefill"), ("out", "decode")):
        cost, tokens, promql_cost, promql_tokens = _of_kind(kind, pool)
        names = f"cost {kind}", f"M tokens {kind}"
        columns[f"per M {kind}"] = f"{promql_cost} / ({promql_tokens})"
        columns |= dict(zip(names, (promql_cost, promql_tokens), strict=True))
        queries += [cost, tokens]
        quotients[f"per M {kind}"] = names
    first, *more = queries
    panel = listing(
        "Services of several hosts: cost per million tokens ($currency)",
        Query.written(first, columns),
        *(Query.written(one, {}) for one in more),
        about="Cost of input is that of the prefill pool, cost of output that of the decode pool, in this range."
        " A part that is silent, or paid in another currency, lowers them: see the hosts that report."
        " `costprobe compare --fleet --by group` prices only hours in which all parts have a cost.",
        span=span,
    )
    return joined(panel, GROUP, (GROUP, *columns), quotients)


def roles(span: int) -> timeseries.Panel:
    """Return the cost of each role of each group."""
    cost = Query(
        'sum("cost_total")',
        "cost",
        over=PAID,
        where=WHOLE,
        by=GROUP_TAGS,
        every="1h",
        alias=f"$tag_{GROUP} $tag_{ROLE}",
    )
    return graph(
        "Services of several hosts: cost per hour by role ($currency)",
        "short",
        cost,
        style="bars",
        about="Idle time included. The roles add up to the group.",
        span=span,
    )


def hosts(span: int) -> timeseries.Panel:
    """Return the number of hosts of each role that have a cost."""
    each = Query(
        'sum("cost_total") AS "cost"', "cost", over=PAID, where=WHOLE, by=(*GROUP_TAGS, "host")
    )
    reporting = each.of(
        'count("cost")', *GROUP_TAGS, every=PER_PANEL, alias=f"$tag_{GROUP} $tag_{ROLE}"
    )
    return graph(
        "Services of several hosts: hosts that report",
        "none",
        reporting,
        about="Hosts with a cost, by role.",
        span=span,
    )
