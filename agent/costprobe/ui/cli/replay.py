"""`costprobe replay`: the alerts that rules would have fired, to test changes of rules."""

from __future__ import annotations

import csv
import heapq
import math
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC
from operator import attrgetter
from pathlib import Path
from typing import Any

import click

from costprobe.adapters.host.host_name import host_tag, host_tags
from costprobe.adapters.store.ledger import RowLabels
from costprobe.adapters.store.read import ROLLUP_TAG, StoreReader
from costprobe.alerts.engine import AlertEngine
from costprobe.alerts.replay import COLLECTOR, Replayed, merged, replay
from costprobe.alerts.rules.kinds import effective_rules
from costprobe.configuration import Config, validated
from costprobe.core.config.load import ConfigError, as_toml_tables
from costprobe.core.config.location import MAX_FILE_BYTES
from costprobe.core.outside import bounded_toml, from_csv_cell
from costprobe.core.periods import parse_date_ns
from costprobe.core.records import NS_PER_S, TOGETHER, FieldValue, Point
from costprobe.core.schema import SCHEMA, make_point
from costprobe.core.units import counted
from costprobe.delivery.contract import NotifierConfig
from costprobe.drift.message import RowHistory
from costprobe.drift.monitor import DriftMonitor
from costprobe.serving.meter import Counts
from costprobe.serving.tokens import TokenWeighing
from costprobe.ui.cli.alerts import incident_table
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.fitting import table_lines
from costprobe.ui.cli.support.option_types import UNTIL_OPTION, since_option
from costprobe.ui.cli.support.output import echo_answer
from costprobe.ui.cli.support.place import Settings, bad_input, reader_of
from costprobe.ui.text import in_local_zone, local

MEASURED = ("device", "probe", "cost", "serving", "allocation", "tenant", "slo", "budget", "agent")


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe replay --since 7d  # alerts that the rules would have fired",
        "costprobe replay --set rule.drift.at_least=5%  # the same with another threshold",
    ),
)
@since_option("30d")
@UNTIL_OPTION
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Use another value: detection.least_effect=5%, rule.drift.at_least=5%.",
)
@click.option(
    "--csv",
    "csv_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="CSV file of rows instead: as `costprobe export --format csv` writes them, or with a"
    " column `time` (ISO 8601, seconds or ns since 1970) and columns named like fields and tags;"
    " `measurement` names the series where several have such a field.",
)
@click.option("--events", is_flag=True, help="List every drift and anomaly, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def command(
    config: str | None,
    *,
    since_ns: int,
    until_ns: int | None,
    changes: Sequence[str],
    csv_path: Path | None,
    events: bool,
    as_json: bool,
) -> None:
    """Run the detectors and rules over stored rows and print what would have fired.

    Nothing is sent or stored. Rows contain no faults, so rules of that kind do not fire; silences and
    maintenance windows are ignored.
    """
    settings = Settings(config)
    changed = overridden(settings.config, changes)
    until_ns = time.time_ns() if until_ns is None else until_ns
    with ExitStack() as stack:
        if csv_path is not None:
            replayed = merged(
                [
                    _replayed(changed, iter(rows), _history_of_rows(rows), host)
                    for host, rows in _by_host(rows_of_csv(csv_path)).items()
                ]
            )
        else:
            reader = stack.enter_context(reader_of(settings))
            # A store that was copied from another host keeps that host's name.
            hosts = {series.tags.get("host", "") for series in reader.series("device")}
            host = hosts.pop() if len(hosts) == 1 else ""
            stored = _stored(reader, since_ns, until_ns)
            replayed = _replayed(changed, stored, _history_of_store(reader), host)
    echo_answer(_document(replayed), _lines(replayed, with_events=events), as_json=as_json)


def _by_host(rows: Iterable[Point]) -> dict[str, list[Point]]:
    """Return the rows of each host; the name is empty where rows have none."""
    hosts: dict[str, list[Point]] = {}
    for row in rows:
        hosts.setdefault(row.tags.get("host", ""), []).append(row)
    return hosts


def _replayed(config: Config, rows: Iterator[Point], history: RowHistory, host: str) -> Replayed:
    """Replay the rows of one host; an empty name is that of the configuration."""
    collector = NotifierConfig(name=COLLECTOR, kind="replay")
    rules = [
        rule.model_copy(update={"notify": None})
        for rule in effective_rules(config.rule, use_defaults=config.alerting.defaults)
    ]
    tags = {**host_tags(config.host), "host": host or host_tag(config.host)}
    labels_of = RowLabels(config.probe, config.service).of
    engine = AlertEngine(rules, config.alerting, (), (collector,), tags, labels_of=labels_of)
    monitor = DriftMonitor(config.detection, history)
    return replay(rows, engine, monitor, config.alerting.evaluate_every_s)


def _stored(reader: StoreReader, since_ns: int, until_ns: int) -> Iterator[Point]:
    return heapq.merge(
        *(
            # Hourly rows would look like gaps.
            reader.points(measurement, since_ns, until_ns, with_hours=False)
            for measurement in MEASURED
        ),
        key=attrgetter("time_ns"),
    )


def _history_of_store(reader: StoreReader) -> RowHistory:
    def history(
        measurement: str, device: str, probe: str, span_ns: tuple[int, int], limit: int
    ) -> Sequence[Point]:
        tags = {name: value for name, value in (("device", device), ("probe", probe)) if value}
        return reader.newest(measurement, *span_ns, tags, limit=limit)

    return history


def _history_of_rows(rows: Sequence[Point]) -> RowHistory:
    by_series: dict[tuple[str, str, str], list[Point]] = {}
    for row in rows:
        tags = row.tags
        series = (row.measurement, tags.get("device", ""), tags.get("probe", ""))
        by_series.setdefault(series, []).append(row)
        if row.measurement == "event" and any(series[1:]):
            by_series.setdefault(("event", "", ""), []).append(row)

    def history(
        measurement: str, device: str, probe: str, span_ns: tuple[int, int], limit: int
    ) -> Sequence[Point]:
        series = by_series.get((measurement, device, probe), [])
        since, until = (bisect_left(series, at_ns, key=attrgetter("time_ns")) for at_ns in span_ns)
        return series[max(since, until - limit) : until]

    return history


def _lines(replayed: Replayed, *, with_events: bool) -> list[str]:
    if replayed.first_ns is None or replayed.last_ns is None:
        return ["no rows in that time range"]
    days = (replayed.last_ns - replayed.first_ns) / NS_PER_S / 86_400
    lines = [
        f"{counted(replayed.rows, 'row')}, {local(replayed.first_ns)} to {local(replayed.last_ns)}"
    ]
    if with_events:
        rows = [
            (local(event.time_ns), event.kind, in_local_zone(event.text, event.time_ns))
            for event in replayed.events
        ]
        lines += table_lines([("time", "event", "what"), *rows], 3, has_prose=True) if rows else []
    incidents = replayed.incidents.values()
    documents = [
        (alert.to_document(), alert.fired_ns or alert.since_ns, alert.ended_ns)
        for alert in incidents
    ]
    lines += incident_table(documents, with_detail=True) if documents else []
    kinds = Counter(event.kind for event in replayed.events)
    lines.append(
        f"{counted(len(replayed.incidents), 'incident')} would have fired in {days:.1f} days;"
        f" {counted(kinds['drift'], 'drift')}, {kinds['anomaly']}"
        f" {'anomaly' if kinds['anomaly'] == 1 else 'anomalies'}"
    )
    return lines


def _document(replayed: Replayed) -> dict[str, Any]:
    return {
        "rows": replayed.rows,
        "first_ns": replayed.first_ns,
        "last_ns": replayed.last_ns,
        "incidents": [alert.to_document() for alert in replayed.incidents.values()],
        "events": [
            {
                "time_ns": event.time_ns,
                "kind": event.kind,
                "metric": event.metric,
                "device": event.device,
                **event.subject,
                "change_pct": event.change_pct,
                "cause": event.cause,
                "text": event.text,
            }
            for event in replayed.events
        ],
    }


COMMAND_LINE = Path("--set")


def overridden(config: Config, settings: Sequence[str]) -> Config:
    """Return a configuration with some keys changed.

    Args:
        config: The configuration in force.
        settings: `section.key=value` each; a table of a list is selected by its name, as in
            `rule.drift.at_least=5%`, also a built-in rule.

    Raises:
        click.ClickException: A key or a value is wrong; exit code 2.
    """
    if not settings:
        return config
    tables = as_toml_tables(config)
    # Add the built-in rules to the file's rules, so that a key of one can be changed.
    rules = effective_rules(config.rule, use_defaults=config.alerting.defaults)
    tables["rule"] = as_toml_tables(Config(rule=tuple(rules)))["rule"]
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise bad_input(f"--set {setting!r}: write KEY=VALUE, such as detection.warm_up=50")
        _set(tables, path.strip().split("."), _value(text.strip()), setting)
    try:
        return validated(tables, COMMAND_LINE)
    except ConfigError as error:
        raise bad_input(str(error)) from error


def _set(tables: dict[str, Any], path: Sequence[str], value: Any, setting: str) -> None:  # noqa: ANN401 - any TOML value
    *sections, key = path
    place: Any = tables
    for section in sections:
        if isinstance(place, list):
            names = [str(table.get("name")) for table in place]
            if section not in names:
                raise bad_input(
                    f"--set {setting!r}: unknown section {section!r}; write one of {', '.join(names)}"
                )
            place = place[names.index(section)]
        else:
            place = place.setdefault(section, {})
        if not isinstance(place, dict | list):
            raise bad_input(f"--set {setting!r}: {section} is not a section")
    if not isinstance(place, dict):
        raise bad_input(f"--set {setting!r}: add the name, as in rule.drift.at_least=5%")
    place[key] = value


def _value(text: str) -> Any:  # noqa: ANN401 - any TOML value
    """Parse a TOML value; other text is a string."""
    try:
        return bounded_toml(f"value = {text}", MAX_FILE_BYTES)["value"]
    except ValueError:  # also for integers of more than 4,300 digits
        return text


EXPORTED = ["time", "measurement", "tags", "field", "value"]
# A file with only times and values is one series of cost.
BARE = {"value": "cost_reference"}
TAGS = {tag for measurement in SCHEMA.values() for tag in measurement.tags} | {"host"}
# Columns of a service's window that divide its cost between input and output tokens.
COUNTED = ("requests", "tokens_in", "cached_tokens", "tokens_out")
# Whole numbers from here on are ns since 1970: as seconds they would lie after the year 33,000.
LEAST_NS = 10**12
MAX_ROWS = 5_000_000


def rows_of_csv(path: Path) -> list[Point]:
    """Return the rows of a file, ordered by time.

    Raises:
        click.ClickException: The file or one of its lines cannot be used; exit code 2.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            header = list(reader.fieldnames or ())
            numbered = ((reader.line_num, line) for line in reader)
            read = _exported if header == EXPORTED else _wide
            rows = list(read(path, header, numbered))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise bad_input(f"{path}: cannot be read: {error}") from error
    return sorted(rows, key=lambda row: row.time_ns)


def _exported(
    path: Path, header: list[str], lines: Iterable[tuple[int, Mapping[str, str]]]
) -> Iterable[Point]:
    """Join the lines of an export, with one value each, to rows."""
    del header
    rows: dict[tuple[str, str, str], dict[str, FieldValue]] = {}
    for number, line in lines:
        if len(rows) > MAX_ROWS:
            raise bad_input(f"{path}: more than {MAX_ROWS} rows; split the file")
        measurement, field = line["measurement"], line["field"]
        values = rows.setdefault((line["time"], measurement, line["tags"]), {})
        values[field] = _value_of(path, number, (measurement, field), line["value"])
    for (stamp, measurement, tags), values in rows.items():
        tags_by_name = dict(
            part.partition("=")[::2] for part in from_csv_cell(tags).split(" ") if part
        )
        # Rows of a minute are close enough to the measurements; between hourly rows all
        # series would count as absent.
        if tags_by_name.pop(ROLLUP_TAG, None) != "1h":
            yield make_point(measurement, tags_by_name, values, _time_ns(path, 0, stamp))


def _wide(
    path: Path, header: list[str], lines: Iterable[tuple[int, Mapping[str, str]]]
) -> Iterable[Point]:
    """Return rows of a file with a column `time` and one for each field and tag.

    Each line is a row of the measurement in the column `measurement`. Without one, columns of services
    belong to `cost`, and all others to the first measurement with such a field.
    """
    if "time" not in header:
        raise bad_input(f"{path}:1: no column `time`")
    places = ("cost", "serving", *SCHEMA) if "service" in header else tuple(SCHEMA)
    fields: dict[str, tuple[str, str]] = {}
    for column in header:
        if column in ("time", "measurement") or column in TAGS:
            continue
        field = BARE.get(column, column)
        home = next((name for name in places if field in SCHEMA[name].fields), None)
        if home is None:
            raise bad_input(f"{path}:1: {column!r} is neither a field nor a tag of a series")
        fields[column] = home, field
    for number, line in lines:
        time_ns = _time_ns(path, number, line["time"])
        kind = {"basis": "serving"} if line.get("service") else {"probe": "csv"}
        tags = {"device": "csv", **kind}
        tags |= {tag: from_csv_cell(line[tag]) for tag in TAGS if line.get(tag)}
        rows: dict[str, dict[str, FieldValue]] = {}
        for column, (home, field) in fields.items():
            if line.get(column):
                measurement = line.get("measurement") or home
                value = _value_of(path, number, (measurement, field), line[column])
                rows.setdefault(measurement, {})[field] = value
        for measurement, values in rows.items():
            is_window = measurement == "cost" and tags.get("basis") == "serving"
            if is_window:
                devices = tags["device"].count(TOGETHER) + 1
                rows[measurement] = _completed_window(path, number, values, devices)
            yield make_point(measurement, tags, rows[measurement], time_ns)


def _completed_window(
    path: Path, number: int, values: Mapping[str, FieldValue], devices: int
) -> dict[str, FieldValue]:
    """Return a service's window with what follows from its other values, where the file lacks it."""
    known: dict[str, Any] = dict(values)
    total = known.setdefault("cost_total", known.get("cost_total_hardware"))
    if "window_s" not in known or total is None:
        raise bad_input(f"{path}:{number}: a window of a service needs `window_s` and `cost_total`")
    known.setdefault("cost_total_hardware", total)
    if "device_busy_s" in known:
        known.setdefault("device_s", known["window_s"] * devices)
    if "requests" in known:
        known.setdefault("inferences", known["requests"])
    if {"tokens_in", "tokens_out"} & known.keys() and "cost_tokens_out" not in known:
        counts = Counts(**{name: known.get(name) for name in COUNTED})
        weights = TokenWeighing().weights("", counts)
        fresh = (counts.fresh_tokens or 0.0) * weights.token_in
        part = fresh / (fresh + (counts.tokens_out or 0.0) * weights.token_out or 1.0)
        known |= {"cost_tokens_in": part * total, "cost_tokens_out": (1 - part) * total}
    return known


def _value_of(path: Path, number: int, place: tuple[str, str], text: str) -> FieldValue:
    """Parse the value of a measurement's field."""
    measurement, field = place
    kind = SCHEMA[measurement].fields.get(field) if measurement in SCHEMA else None
    if kind is None:
        raise bad_input(f"{path}:{number}: no field {measurement}.{field}")
    return _number_of(path, number, text, kind)


def _number_of(path: Path, number: int, text: str, kind: type) -> FieldValue:
    if kind is str:
        return from_csv_cell(text)
    if kind is bool:
        return text.strip().lower() in {"true", "t", "1"}
    try:
        value = float(text)
    except ValueError:
        raise bad_input(f"{path}:{number}: {text!r} is not a number") from None
    if not math.isfinite(value):
        raise bad_input(f"{path}:{number}: {text!r} is not a number")
    return value


def _time_ns(path: Path, number: int, text: str) -> int:
    """Parse seconds or ns since 1970, or ISO 8601 (UTC without a zone), to UTC ns."""
    if text.isdecimal() and LEAST_NS <= int(text[:20]) < 2**63:
        return int(text)
    try:
        seconds = float(text)
    except ValueError:
        pass
    else:
        if not 0 <= seconds * 1e9 < 2**63:
            raise bad_input(f"{path}:{number}: {text!r} is no number of seconds since 1970")
        return round(seconds * 1e9)
    try:
        return parse_date_ns(text, UTC)
    except ValueError as error:
        raise bad_input(f"{path}:{number}: {error}") from None
