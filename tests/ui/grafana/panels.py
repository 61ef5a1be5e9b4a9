"""The dashboards of the package, and their queries with variables replaced as Grafana does."""

import json
import re
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "agent/costprobe/ui/grafana/dashboards"
BOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
PANELS = [
    (f"{name}: {panel['title']} {target['refId']}", panel, target)
    for name, board in BOARDS.items()
    for panel in board["panels"]
    for target in panel.get("targets", [])
]
VARIABLES = {
    (name, v["name"]): v for name, board in BOARDS.items() for v in board["templating"]["list"]
}


def range_of(start_ns, end_ns):
    """Return the condition in place of the dashboard's time range."""
    return f"time >= {start_ns} AND time <= {end_ns}"


def filled(text, chosen, when, interval="5m"):
    """Return a query with its variables replaced as Grafana's InfluxDB source does."""
    text = text.replace("$timeFilter", when).replace("$__interval", interval)
    # The newest rows are at the end of the range.
    text = text.replace("now()", when.rpartition(" ")[2])
    for name, value in chosen.items():
        text = text.replace(f"${{{name}:raw}}", value)
        text = re.sub(rf"\${name}\b", lambda _, value=value: value, text)
    assert "$" not in text.replace("$/", ""), text
    return text


def as_regex(values):
    """Return the selected values as one regular expression."""
    escaped = [re.sub(r"[\\^$*+?.()|[\]{}/]", r"\\\g<0>", value) for value in values]
    return f"({'|'.join(escaped)})" if len(escaped) > 1 else escaped[0]


def filled_columns(found):
    """Return the number of values in each column of a response."""
    columns = {column: 0 for series in found for column in series["columns"]}
    for series in found:
        for row in series["values"]:
            for column, value in zip(series["columns"], row, strict=True):
                columns[column] += value not in (None, "")
    return columns
