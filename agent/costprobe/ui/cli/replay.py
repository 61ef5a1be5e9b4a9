"""`costprobe replay`: the alerts that rules would have fired, to test changes of rules."""

from __future__ import annotations

import heapq
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from operator import attrgetter
from pathlib import Path
from typing import Any

import click

from costprobe.adapters.host.host_name import host_tag, host_tags
from costprobe.adapters.store.ledger import RowLabels
from costprobe.adapters.store.read import StoreReader
from costprobe.alerts.engine import AlertEngine
from costprobe.alerts.replay import COLLECTOR, Replayed, merged, replay
from costprobe.alerts.rules.kinds import effective_rules
from costprobe.configuration import Config, validated
from costprobe.core.config.load import ConfigError, as_toml_tables
from costprobe.core.config.location import MAX_FILE_BYTES
from costprobe.core.incident import Alert
from costprobe.core.outside import bounded_toml
from costprobe.core.records import NS_PER_S, Point
from costprobe.core.units import counted
from costprobe.delivery.contract import NotifierConfig
from costprobe.drift.message import RowHistory
from costprobe.drift.monitor import DriftMonitor
from costprobe.ui.cli.support.command_classes import ExampleCommand
from costprobe.ui.cli.support.loaded_config import LoadedConfig, bad_input, reader_of
from costprobe.ui.cli.support.option_types import Moment
from costprobe.ui.cli.support.output import echo_answer
from costprobe.ui.cli.views.csv_rows import rows_of_csv
from costprobe.ui.text import ago, local

MEASURED = ("device", "probe", "cost", "serving", "allocation", "tenant", "budget", "agent")


@click.command(
    cls=ExampleCommand,
    examples=(
        "costprobe replay --since 7d  # alerts that the rules would have fired",
        "costprobe replay --set rule.drift.at_least=5%  # the same with another threshold",
    ),
)
@click.option("--since", "since_ns", type=Moment(), default="30d", help='"30d" or a date.')
@click.option("--until", "until_ns", type=Moment(), help='"1h" or a date (default: now).')
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
    " column `time` (ISO 8601, seconds or ns since 1970) and columns named like fields and tags.",
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
    settings = LoadedConfig(config)
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
            reader.points(measurement, since_ns, until_ns, coarsest_s=60)
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
        lines += [
            f"{local(event.time_ns)}  {event.kind:8s}  {event.text}" for event in replayed.events
        ]
    for alert in replayed.incidents.values():
        lines.append(_alert_line(alert))
        if alert.detail:
            lines.append(f"    {alert.detail}")
    kinds = Counter(event.kind for event in replayed.events)
    lines.append(
        f"{counted(len(replayed.incidents), 'incident')} would have fired in {days:.1f} days;"
        f" {kinds['drift']} drifts, {kinds['anomaly']} anomalies"
    )
    return lines


def _alert_line(alert: Alert) -> str:
    fired_ns = alert.fired_ns or alert.since_ns
    lasted = (
        "still firing"
        if alert.ended_ns is None
        else f"for {ago((alert.ended_ns - fired_ns) / NS_PER_S)}"
    )
    labels = " ".join(f"{name}={value}" for name, value in sorted(alert.labels.items()))
    return (
        f"{local(fired_ns)}  {lasted:12s}  {alert.severity:8s}  {alert.name}"
        f"  {labels}  {alert.summary}"
    )


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
