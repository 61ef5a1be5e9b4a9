"""What a panel shows: a number, the value of each curve by its legend, or the rows of a table.

The queries run on a real server, with Grafana's variables filled; then its legends and the transformations
that the dashboards use are applied as Grafana documents them.
"""

import json
import re
import tomllib
from pathlib import Path

import pytest
from costprobe.ui.grafana.provisioning import boards
from fakes.known import END_NS, NOW_NS, START_NS

ANSWERS = tomllib.loads(Path(__file__).with_name("known_answers.toml").read_text())
CHOSEN = {"probe": "ranker", "currency": "USD", "price_a": "3.6", "price_b": "1.2"}
CHOSEN |= {"tariff_per_kwh": "0.36"}
# A dashboard of one host shows one.
HOSTS = {"host": "a"}
RANGE = f"time >= {START_NS} AND time < {END_NS}"


def boards_of(edition):
    """The dashboards of an edition, by name."""
    return {name.removesuffix(".json"): json.loads(text) for name, text in boards(edition).items()}


def panels_of(edition):
    """The panels with queries of an edition, by dashboard and title."""
    return {
        f"{name}: {panel['title']}": panel
        for name, board in boards_of(edition).items()
        for panel in board["panels"]
        if "targets" in panel
    }


def known_answers(edition):
    """What the panels of an edition show, by title."""
    return ANSWERS["answers"] | ANSWERS.get(edition, {})


def wrong_panels(edition, shown):
    """The panels that do not show their known answer: what they show, and the answer.

    Args:
        edition: Edition of the dashboards.
        shown: What each panel of the edition shows, by title.
    """
    wanted = known_answers(edition)
    left_out = ANSWERS["left_out"] if edition == "prometheus" else {}
    wrong = dict.fromkeys(shown.keys() - wanted.keys(), "has no known answer")
    wrong |= dict.fromkeys(wanted.keys() - shown.keys(), "is not there")
    for title in shown.keys() & wanted.keys():
        if not is_answer(shown[title], wanted[title], set(left_out.get(title, ()))):
            wrong[title] = {"shown": shown[title], "answer": wanted[title]}
    return wrong


def is_answer(shown, wanted, left_out):
    """Whether a panel shows its answer; a table may have more columns, and repeat rows."""
    if not isinstance(wanted, list):
        return shown == pytest.approx(wanted, rel=1e-6)
    if not isinstance(shown, list) or bool(shown) != bool(wanted):
        return False
    columns = {column for row in wanted for column in row} - left_out
    rows = [{key: value for key, value in row.items() if key in columns} for row in shown]
    needed = [{key: value for key, value in row.items() if key in columns} for row in wanted]
    return all(any(_is_row(row, one) for one in needed) for row in rows) and all(
        any(_is_row(row, one) for row in rows) for one in needed
    )


def _is_row(row, wanted):
    texts, numbers = _texts_and_numbers(row)
    wanted_texts, wanted_numbers = _texts_and_numbers(wanted)
    return texts == wanted_texts and numbers == pytest.approx(wanted_numbers, rel=1e-6)


def _texts_and_numbers(row):
    texts = {key: value for key, value in row.items() if isinstance(value, str)}
    return texts, {key: float(value) for key, value in row.items() if key not in texts}


def chosen(title, name):
    """The value of a variable on a dashboard."""
    return HOSTS.get(title.partition(":")[0]) if name == "host" else CHOSEN.get(name)


def in_influxql(text, title, *, when=RANGE, now_ns=NOW_NS):
    """A query with its variables filled."""
    text = text.replace("$timeFilter", when).replace("$__interval", "1h")
    text = text.replace("now()", str(now_ns))
    text = re.sub(r"\$\{(\w+):raw\}", lambda name: CHOSEN[name[1]], text)
    text = re.sub(r"\$(\w+)(?=\$/)", lambda name: chosen(title, name[1]) or ".*", text)
    assert "$" not in text.replace("$/", ""), text
    return text


def in_promql(text, title, *, interval="1h"):
    """A query with its variables filled."""
    text = text.replace("$__range", "1h").replace("$__rate_interval", interval)
    text = text.replace("$__interval", interval)
    text = re.sub(r"\$\{(\w+):raw\}", lambda name: CHOSEN[name[1]], text)
    text = re.sub(r'"\$(\w+)"', lambda name: f'"{chosen(title, name[1]) or ".*"}"', text)
    assert "$" not in text, text
    return text


def shown_from_influxdb(panel, title, query):
    """What a panel shows; `query` runs InfluxQL and returns series."""
    results = [query(in_influxql(target["query"], title)) for target in panel["targets"]]
    if panel["type"] == "table":
        tables = [_rows(series) for series in results]
        return _organized(panel, tables)
    curves = {}
    for target, found in zip(panel["targets"], results, strict=True):
        for series in found:
            for place, column in enumerate(series["columns"][1:], start=1):
                values = [row[place] for row in series["values"] if row[place] is not None]
                name = _legend(target.get("alias", ""), series.get("tags", {}), column)
                fields = panel.get("options", {}).get("reduceOptions", {}).get("fields")
                if fields == "/^Time$/":
                    values = [series["values"][-1][0] / 1e6]
                if values:
                    curves.setdefault(name, []).extend(values)
    return _number_or_curves(panel, curves)


def _legend(alias, tags, column):
    name = re.sub(r"\$tag_(\w+)", lambda tag: tags.get(tag[1], ""), alias)
    return name.replace("$col", column).strip()


def _rows(found):
    return [
        {
            **{key: value for key, value in series.get("tags", {}).items() if value},
            **{
                "Time" if column == "time" else column: value / 1e6 if column == "time" else value
                for column, value in zip(series["columns"], row, strict=True)
                if value not in (None, "")
            },
        }
        for series in found
        for row in series["values"]
    ]


def _organized(panel, tables):
    """The rows of a table, joined and renamed by its transformations, without hidden columns."""
    rows = tables[0]
    transformations = panel.get("transformations", ())
    options = {one["id"]: one["options"] for one in transformations}
    if "joinByField" in options:
        assert options["filterFieldsByName"] == {"exclude": {"names": ["Time"]}}
        by = options["joinByField"]["byField"]
        joined = {}
        for row in (row for table in tables for row in table):
            joined.setdefault(row[by], {}).update({k: v for k, v in row.items() if k != "Time"})
        if options["joinByField"]["mode"] == "inner":
            common = set.intersection(*({row[by] for row in table} for table in tables))
            joined = {key: row for key, row in joined.items() if key in common}
        for one in transformations:
            if one["id"] == "calculateField":
                terms = one["options"]["binary"]
                assert terms["operator"] == "/"
                for row in joined.values():
                    row[one["options"]["alias"]] = row[terms["left"]] / row[terms["right"]]
        rows = list(joined.values())
    else:
        assert len(tables) == 1, panel["title"]
    renamed = options.get("organize", {}).get("renameByName", {})
    hidden = {
        one["matcher"]["options"]
        for one in panel["fieldConfig"]["overrides"]
        if {"id": "custom.hidden", "value": True} in one["properties"]
    }
    return [
        {
            renamed.get(column, column): value
            for column, value in row.items()
            if column not in hidden
        }
        for row in rows
    ]


def shown_from_prometheus(panel, title, query):
    """What a panel shows; `query` runs PromQL and returns labels and values."""
    results = [query(in_promql(target["expr"], title)) for target in panel["targets"]]
    if panel["type"] == "table":
        return _merged(panel, results)
    curves = {}
    for target, found in zip(panel["targets"], results, strict=True):
        for labels, value in found:
            legend = target["legendFormat"].replace("__auto", "")
            name = re.sub(r"{{(\w+)}}", lambda tag, labels=labels: labels.get(tag[1], ""), legend)
            curves.setdefault(" ".join(name.split()), []).append(value)
    return _number_or_curves(panel, curves)


def _merged(panel, results):
    options = {one["id"]: one["options"] for one in panel["transformations"]}
    assert list(options) == ["merge", "organize"]
    assert options["organize"]["excludeByName"] == {"Time": True}
    rows = {}
    for target, found in zip(panel["targets"], results, strict=True):
        column = f"Value #{target['refId']}" if len(results) > 1 else "Value"
        for labels, value in found:
            name = options["organize"]["renameByName"].get(column, column)
            rows.setdefault(tuple(sorted(labels.items())), dict(labels))[name] = value
    return list(rows.values())


def _number_or_curves(panel, curves):
    repeated = {name: values for name, values in curves.items() if len(values) > 1}
    assert not repeated, (panel["title"], repeated)
    values = {" ".join(name.split()): value for name, (value,) in curves.items()}
    if panel["type"] == "stat" and len(values) <= 1:
        return next(iter(values.values()), None)
    return values
