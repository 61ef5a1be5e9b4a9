"""A daemon's status as readable lines."""

from __future__ import annotations

import time
from typing import Any

from costprobe import __version__
from costprobe.core.money import money, price_scale, price_text
from costprobe.core.statistics import WINDOWS_S
from costprobe.core.units import counted, percent
from costprobe.ui.cli.views.lines import probe_line
from costprobe.ui.cli.views.serving_lines import service_lines
from costprobe.ui.text import ago, local

FAULT = "FAULT"


def faults_of(status: dict[str, Any]) -> list[str]:
    """Return the faults of all parts, one line each."""
    lines = (line.strip() for line in lines_of(status))
    return [line.removeprefix(FAULT).strip() for line in lines if line.startswith(FAULT)]


def lines_of(status: dict[str, Any]) -> list[str]:
    """Return a status as lines; that of another version as far as possible."""
    version = status.get("version")
    try:
        lines = _lines_of(status)
    except (AttributeError, KeyError, TypeError):
        if version == __version__:
            raise
        state = "running" if status["running"] else "NOT RUNNING"
        lines = [f"costprobe on {status.get('host')}: {state}; the rest needs version {version}"]
    if version != __version__ and status["running"]:
        lines.append(
            f"version  the daemon is {version}, this command is {__version__}: restart the service"
        )
    return lines


def _lines_of(status: dict[str, Any]) -> list[str]:
    if status["running"]:
        up_s = time.time() - status["started_ns"] / 1e9
        head = f"running for {ago(up_s)} (pid {status['pid']}, {status['version']})"
    else:
        head = f"NOT RUNNING; last seen {ago(status['age_s'])} ago as {status['state']}"
    lines = [f"costprobe on {status['host']}: {head}"]
    lines.append(f"config   {status['config'] or 'none (demo mode)'}")
    if status["config_fault"]:
        lines.append(f"  FAULT  {status['config_fault']}")
    lines.append(f"store    {status['store']['path']}")
    if status["store"]["fault"]:
        lines.append(f"  FAULT  {status['store']['fault']}")
    lines += [
        f"  FAULT  a damaged store was replaced and is kept as {path}: recover it, move or delete it"
        for path in status["store"].get("replaced", ())
    ]
    lines += [f"device   {device['name']}: {device['model']}" for device in status["devices"]]
    lines += _sensor_lines(status["sensor"])
    lines += [
        f"  FAULT  {board['text']}; if it was removed for good: costprobe annotate --device {uuid} --left"
        for uuid, board in status.get("absent_boards", {}).items()
    ]
    lines += [f"  FAULT  {text}" for text in status.get("billed_elsewhere", {}).values()]
    for probe in status["probes"]:
        lines += _probe_lines(probe, is_running=status["running"])
    lines += [line for served in status.get("services", ()) for line in service_lines(served)]
    lines += _pod_lines(status.get("kubernetes") or {})
    for name, sink in status["sinks"].items():
        lines += _sink_lines(name, sink, status["outbox"].get(name, {}))
    for name, notifier in status["notifiers"].items():
        lines += _notifier_lines(name, notifier)
    lines += _alert_lines(status["alerts"])
    if status["alerting"].get("fault"):
        waiting = counted(status["alerting"]["waiting_notices"], "notification")
        lines.append(f"  FAULT  {status['alerting']['fault']}; {waiting} queued in memory")
    for name, spot in status.get("spot_prices", {}).items():
        lines += _spot_lines(name, spot)
    lines += _carbon_lines(status.get("carbon") or {})
    lines += [line for budget in status.get("budgets", []) for line in budget_lines(budget)]
    if status["control"]["fault"]:
        lines.append(f"  FAULT  no control socket: {status['control']['fault']}")
    lines += _http_lines(status.get("http", {}))
    late = {name: job["late"] for name, job in status["jobs"].items() if job["late"]}
    lines += [f"late     {name}: {counted(count, 'run')} skipped" for name, count in late.items()]
    errors = {name: job for name, job in status["jobs"].items() if job["last_error"]}
    lines += [f"  FAULT  {name}: {job['last_error']}" for name, job in errors.items()]
    return lines


def _http_lines(http: dict[str, Any]) -> list[str]:
    if http.get("fault"):
        return [f"  FAULT  HTTP is not served: {http['fault']}"]
    return [f"http     /healthz and /metrics on {http['listen']}"] if http.get("listen") else []


def _sensor_lines(sensor: dict[str, Any]) -> list[str]:
    driver = f", NVIDIA driver {sensor['driver_version']}" if sensor["driver_version"] else ""
    lines = [f"sensor   {sensor['state']}{driver}, {counted(sensor['child_restarts'], 'restart')}"]
    if sensor["last_fault"]:
        lines.append(f"         last fault: {sensor['last_fault']}")
    lines += [f"  FAULT  {reason}" for reason in sensor.get("driver_faults", {}).values()]
    for name, device in sensor["devices"].items():
        if device["state"] != "good":
            lines.append(f"  FAULT  {name} is quarantined, next try in {ago(device['retry_in_s'])}")
        if device["suspect"]:
            lines.append(
                f"  FAULT  {name}: its energy is suspect, the counter counts"
                f" {percent(device['counter_to_power_ratio'])} of the integrated power"
            )
    return lines


def _probe_lines(probe: dict[str, Any], *, is_running: bool) -> list[str]:
    lines = []
    last = probe["last"]
    if last is None:
        lines.append(f"probe    {probe['device']} {probe['probe']}: no result yet")
    else:
        lines.append(f"probe    {local(last['time_ns'])}  {probe_line(last)}")
        lines += _rolling(last)
    if is_running:
        next_ns = probe["next_ns"]
        lines.append(f"         next run {'not planned' if next_ns is None else local(next_ns)}")
    if probe["budget_share"] < 1:
        lines.append(
            f"         probing took {percent(probe['budget_used_share'], 2)} of the last hour,"
            f" budget {percent(probe['budget_share'], 2)}, {counted(probe['skipped_for_budget'], 'run')} skipped"
        )
    if probe["skipped_for_neighbour"] or probe["deferred"]:
        lines.append(
            f"         because of other processes {counted(probe['deferred'], 'run')} waited and"
            f" {counted(probe['skipped_for_neighbour'], 'run')} skipped"
        )
    if probe["fault"]:
        lines.append(f"  FAULT  {local(probe['fault']['time_ns'])}  {probe['fault']['title']}")
        lines += [f"         {words}" for words in probe["fault"]["stderr_tail"][-3:]]
    return lines


def _rolling(last: dict[str, Any]) -> list[str]:
    """Return the rolling costs of the windows that contain a sample."""
    lines = []
    rolling = last["rolling"]
    for window in WINDOWS_S:
        name = f"rolling_{window}"
        if name in rolling:
            currency, coverage = last["cost"]["currency"], rolling[f"{name}_coverage"]
            scale = price_scale(rolling[name])
            figures = [
                f"{words} {price_text(rolling[key], currency, scale)}"
                for words, key in (("median", name), ("IQR", f"{name}_iqr"))
                if key in rolling
            ]
            samples = counted(rolling[f"{name}_samples"], "sample")
            covered = "" if coverage >= 0.5 else f"; {percent(coverage)} covered"  # noqa: PLR2004 - half, as the design defines it
            lines.append(f"         rolling {window}: {', '.join((*figures, samples))}{covered}")
    return lines


def _sink_lines(name: str, sink: dict[str, Any], outbox: dict[str, Any]) -> list[str]:
    lines = [
        (
            f"sink     {name}: {sink['state']}, {counted(outbox.get('sent_points_total', 0), 'point')} sent,"
            f" {outbox.get('outbox_points', 0)} waiting, {ago(outbox.get('outbox_lag_s', 0.0))} behind,"
            f" {outbox.get('rejected_points_total', 0)} rejected"
        )
    ]
    if sink["last_error"]:
        again = f"; retry in {ago(sink['retry_in_s'])}" if sink["retry_in_s"] else ""
        lines.append(f"  FAULT  {sink['last_error']}{again}")
    if sink.get("rejections"):
        lines.append(
            f"  FAULT  the database permanently rejects points: {sink['rejections']['reason']};"
            f" see costprobe sink rejected {name}"
        )
    return lines


def _spot_lines(name: str, spot: dict[str, Any]) -> list[str]:
    price = spot["price_per_h"]
    words = "unknown" if price is None else f"{money(float(price), spot['currency'])}/h"
    lines = [f"price    spot {name}: {words}"]
    if spot["stale"] or spot["last_error"]:
        state = "stale" if spot["stale"] else "the source fails"
        lines.append(f"  FAULT  spot price {name}: {state}: {spot['last_error'] or 'no new value'}")
    return lines


def budget_lines(budget: dict[str, Any]) -> list[str]:
    """Return a budget's status as lines."""
    currency, expected = budget["currency"], budget["forecast"]
    words = "" if expected is None else f", forecast {money(expected, currency)}"
    age_s = time.time() - budget["time_ns"] / 1e9
    spent = money(budget["spent"], currency) if budget["coverage"] else "no costs known"
    lines = [
        (
            f"budget   {budget['budget']}: {spent} of"
            f" {money(budget['amount'], currency)} for the {budget['period']}{words},"
            f" {percent(budget['elapsed_share'])} elapsed, {percent(budget['coverage'])} covered,"
            f" as of {ago(age_s)} ago"
        )
    ]
    if budget["exceeded"]:
        lines.append(f"         budget {budget['budget']} is exceeded")
    elif budget["forecast_exceeded"]:
        lines.append(f"         budget {budget['budget']} will be exceeded")
    return lines + [f"         not included: {missing}" for missing in budget["missing"]]


def _notifier_lines(name: str, notifier: dict[str, Any]) -> list[str]:
    counts = ", ".join(
        f"{notifier[key]} {word}"
        for key, word in (("sent", "sent"), ("queued", "waiting"), ("dropped", "dropped"))
    )
    lines = [f"notifier {name} ({notifier['kind']}): {counts}"]
    if notifier["failing"]:
        again = f"; retry in {ago(notifier['retry_in_s'] or 0.0)}"
        lines.append(f"  FAULT  {notifier['failing']}{again}")
    if notifier["dropped"]:
        lines.append(f"         last dropped: {notifier['last_dropped']}")
    return lines


def _alert_lines(alerts: list[dict[str, Any]]) -> list[str]:
    firing = [alert for alert in alerts if alert["state"] == "firing"]
    if not firing:
        return ["alerts   none firing"]
    lines = [f"alerts   {len(firing)} firing; see costprobe alerts"]
    lines += [f"         {alert['severity']}: {alert['summary']}" for alert in firing[:3]]
    return lines


def _pod_lines(pods: dict[str, Any]) -> list[str]:
    if not pods:
        return []
    lines = [
        f"pods     {workload['service']} on {', '.join(workload['devices'])}"
        + (f" ({workload['engine']})" if workload["engine"] else "")
        for workload in pods["workloads"]
    ]
    if pods["fault"]:
        lines.append(f"  FAULT  kubernetes: {pods['fault']}")
    return lines or ["pods     no container holds a device"]


def _carbon_lines(carbon: dict[str, Any]) -> list[str]:
    if not carbon:
        return []
    lines = [f"carbon   {carbon['g_per_kwh'] or 'unknown'} g/kWh"]
    if carbon["stale"] or carbon["last_error"]:
        state = "stale" if carbon["stale"] else "the source fails"
        lines.append(
            f"  FAULT  carbon intensity: {state}: {carbon['last_error'] or 'no new value'}"
        )
    return lines
