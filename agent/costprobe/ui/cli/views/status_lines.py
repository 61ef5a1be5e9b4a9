"""A daemon's status and the result of a probe as readable lines."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from costprobe import __version__
from costprobe.alerts.faults import present_faults
from costprobe.core.money import (
    PER_THOUSAND,
    cents,
    common_scale,
    money,
    price_scale,
    price_text,
    scale_words,
    unit_price,
)
from costprobe.core.records import devices_text
from costprobe.core.schema import ASSUMED, UNATTRIBUTED, part_words
from costprobe.core.slo import slo_words
from costprobe.core.statistics import WINDOWS_S
from costprobe.core.units import counted, percent, significant
from costprobe.ui.amounts import si
from costprobe.ui.incidents import hidden_changes, noisy_services
from costprobe.ui.text import (
    CHUNKS,
    ago,
    cache_words,
    in_local_zone,
    kind_prices,
    local,
    short,
)

if TYPE_CHECKING:  # imported only by the type checker: the command must be fast
    from costprobe.adapters.store.cursors import SinkStatus


# A line: its label, empty for more of the part above, and its text.
Part = tuple[str, str]
FAULT: Final = "  FAULT"


def lines_of(status: dict[str, Any]) -> list[str]:
    """Return a status as lines; that of another version as far as possible."""
    version = status.get("version")
    try:
        lines = _labelled(_parts_of(status))
    except (AttributeError, KeyError, TypeError):
        if version == __version__:
            raise
        lines = [f"the rest needs version {version}"]
    if version != __version__ and status["running"]:
        lines.append(
            f"version  the daemon is {version}, this command is {__version__}: restart the service"
        )
    return [f"costprobe on {status.get('host')}: {_state(status)}", *lines]


def _labelled(parts: Iterable[Part]) -> list[str]:
    return [f"{label:9}{text}" for label, text in parts]


def _state(status: dict[str, Any]) -> str:
    if not status["running"]:
        return f"NOT RUNNING; last seen {ago(status['age_s'])} ago as {status['state']}"
    up_s = time.time() - status.get("started_ns", 0) / 1e9
    return f"running for {ago(up_s)} (pid {status['pid']}, {status['version']})"


def _parts_of(status: dict[str, Any]) -> Iterator[Part]:
    yield from (("cost", words) for words in hourly_costs(status))
    yield from ((FAULT, fault.words) for fault in present_faults(status, None))
    yield "config", status["config"] or "none (demo mode)"
    yield "store", status["store"]["path"]
    of_model: dict[str, list[str]] = {}
    for one in status["devices"]:
        of_model.setdefault(one["model"], []).append(one["name"])
    yield from (("device", f"{devices_text(names)}: {model}") for model, names in of_model.items())
    yield from _sensor(status["sensor"])
    for probe in status["probes"]:
        yield from _probe(probe, is_running=status["running"])
        detectable = status.get("detectable", ())
        hidden = hidden_changes(detectable, probe["device"], probe["probe"])
        yield from (("", text) for text in hidden)
    services = status.get("services", ())
    scale = common_scale(price for served in services for price in _request_prices(served["last"]))
    for served in services:
        yield from _service(served, scale)
        noisy = noisy_services(status.get("noisy_services", ()), served["service"])
        yield from (("", text) for text in noisy)
    yield from _pods(status.get("kubernetes"))
    for name, sink in status["sinks"].items():
        yield from _sink(name, sink, status["outbox"].get(name, {}))
    for name, notifier in status["notifiers"].items():
        yield from _notifier(name, notifier)
    yield from _alerts(status["alerts"])
    if status["alerting"].get("fault"):
        waiting = counted(status["alerting"]["waiting_notices"], "notification")
        yield FAULT, f"{status['alerting']['fault']}; {waiting} waiting in memory"
    yield from _sources(status)
    for budget in status.get("budgets", []):
        yield from _budget(budget)
    if status["control"]["fault"]:
        yield FAULT, f"no control socket: {status['control']['fault']}"
    if listen := status.get("http", {}).get("listen"):
        yield "http", f"/healthz and /metrics on {listen}"
    jobs = status["jobs"].items()
    yield from (
        ("late", f"{name}: {counted(job['late'], 'run')} skipped")
        for name, job in jobs
        if job["late"]
    )
    yield from ((FAULT, f"{n}: {job['last_error']}") for n, job in jobs if job["last_error"])


def hourly_costs(status: dict[str, Any]) -> list[str]:
    """Return what holding the host's devices costs an hour, in each currency, from the JSON of `status`."""
    found = []
    # A daemon of an earlier version does not state the prices.
    prices = status.get("prices", [])
    for currency in dict.fromkeys(price["currency"] for price in prices):
        own = [price for price in prices if price["currency"] == currency]
        per_hour, low, high = (
            math.fsum(float(price[key] or price["price_rate_per_h"]) for price in own)
            for key in ("price_rate_per_h", "price_rate_low_per_h", "price_rate_high_per_h")
        )
        words = f"{money(per_hour, currency)} an hour"
        if len(own) < len(status["devices"]):
            words += f" for {', '.join(price['device'] for price in own)}"
        if not all(price["electricity_included"] for price in own):
            words += ", electricity not included"
        if any(price["plan"] == ASSUMED for price in own):
            words += f" (assumed, {range_words(str(low), str(high), currency)}; set [[price]])"
        found.append(words)
    return found


def _sensor(sensor: dict[str, Any]) -> Iterator[Part]:
    versions = {"NVIDIA driver": sensor["driver_version"], **sensor.get("other_versions", {})}
    drivers = [f"{name} {version}" for name, version in versions.items() if version]
    restarts = counted(sensor["child_restarts"], "restart")
    yield "sensor", ", ".join((sensor["state"], *drivers, restarts))
    if sensor["last_fault"]:
        yield "", f"last fault: {sensor['last_fault']}"
    for name, device in sensor["devices"].items():
        if device["state"] != "good":
            yield "", f"{name}: next try in {ago(device['retry_in_s'])}"


def _probe(probe: dict[str, Any], *, is_running: bool) -> Iterator[Part]:
    last = probe["last"]
    if last is None:
        yield "probe", f"{probe['device']} {probe['probe']}: no result yet"
    else:
        yield "probe", f"{local(last['time_ns'])}  {probe_line(last)}"
        yield from _rolling_of_probe(last)
    if is_running:
        next_ns = probe["next_ns"]
        yield "", f"next run {'not planned' if next_ns is None else local(next_ns)}"
    if probe["budget_share"] < 1:
        words = (
            f"probing took {percent(probe['budget_used_share'], 2)} of the last hour, budget"
            f" {percent(probe['budget_share'], 2)} on average"
        )
        every_s, allowed_s = probe["every_s"], probe.get("allowed_every_s", 0.0)
        if allowed_s > every_s:
            took = f" of {probe['run_s']:.3g} s" if probe.get("run_s") else ""
            words += (
                f": a run{took} every {ago(allowed_s)} instead of {ago(every_s)};"
                " raise [probing] duty for more"
            )
        yield "", words
    effects = (("delayed", "deferred"), ("prevented", "skipped_for_neighbour"))
    if hindered := [f"{word} {counted(probe[key], 'run')}" for word, key in effects if probe[key]]:
        yield "", f"other processes {' and '.join(hindered)}"
    if probe["fault"]:
        yield "", f"failed {local(probe['fault']['time_ns'])}: {probe['fault']['title']}"
        yield from (("", words) for words in probe["fault"]["stderr_tail"][-3:])


def _rolling_of_probe(last: dict[str, Any]) -> Iterator[Part]:
    """Yield the rolling medians of a probe with their spread, at the scale of its last run."""
    rolling, cost = last["rolling"], last["cost"] or {}
    known = [rolling.get(f"rolling_{window}") for window in WINDOWS_S]
    scale = common_scale([cost.get("cost_per_inference")] if cost else known)
    currency, unit = cost.get("currency", ""), unit_of(last)
    for window, median in zip(WINDOWS_S, known, strict=True):
        if median is not None:
            name = f"rolling_{window}"
            iqr = rolling.get(f"{name}_iqr")
            spread = [] if iqr is None else [f"IQR {money(iqr * scale, currency)}"]
            samples = counted(rolling[f"{name}_samples"], "sample")
            words = ", ".join(
                (f"median {unit_price(median, currency, scale, unit)}", *spread, samples)
            )
            yield "", f"rolling {window}: {words}{_covered(rolling[f'{name}_coverage'])}"


def _rolling_of_service(last: dict[str, Any], scale: int) -> Iterator[Part]:
    """Yield the rolling costs of the windows that contain a sample."""
    for window in WINDOWS_S:
        name = f"rolling_{window}"
        cost = last["rolling"].get(name)
        if cost is not None:
            words = unit_price(cost, last["currency"] or "", scale, "inference")
            yield "", f"rolling {window}: {words}{_covered(last['rolling'][f'{name}_coverage'])}"


def _covered(coverage: float) -> str:
    return "" if coverage >= HALF else f"; {percent(coverage)} covered"


def _sink(name: str, sink: dict[str, Any], outbox: dict[str, Any]) -> Iterator[Part]:
    acked_ns = outbox.get("acked_ns")
    last = "never" if acked_ns is None else local(acked_ns)
    words = (
        f"{name}: {sink['state']}, {counted(outbox.get('sent_points_total', 0), 'point')} sent,"
        f" {outbox.get('outbox_points', 0)} waiting, {ago(outbox.get('outbox_lag_s', 0.0))} behind,"
        f" {outbox.get('rejected_points_total', 0)} rejected,"
        f" {outbox.get('dropped_points_total', 0)} dropped; last progress {last}"
    )
    yield "sink", words
    if sink["retry_in_s"]:
        yield "", f"{sink['last_error']}; retry in {ago(sink['retry_in_s'])}"


def _sources(status: dict[str, Any]) -> Iterator[Part]:
    """Yield the spot prices and the carbon intensity."""
    for name, spot in status.get("spot_prices", {}).items():
        price = spot["price_per_h"]
        words = "unknown" if price is None else f"{cents(float(price), spot['currency'])}/h"
        yield "price", f"spot {name}: {words}"
        yield from _source_fault(spot)
    if carbon := status.get("carbon"):
        yield "carbon", f"{carbon['g_per_kwh'] or 'unknown'} g/kWh"
        yield from _source_fault(carbon)
    if server := status.get("server_power"):
        yield from _server(
            server["last"], are_gpus=all(d["kind"] != "cpu" for d in status["devices"])
        )


def _server(last: dict[str, Any] | None, *, are_gpus: bool) -> Iterator[Part]:
    """Yield the power of the whole server, that of its devices, and that of the rest."""
    if last is None:
        yield "server", "power unknown yet"
        return
    devices = "GPUs" if are_gpus else "devices"
    powers = {
        f"{devices} ": last["devices_power_w"],
        f"besides {devices} ": last["others_power_w"],
    }
    known = [f"{name}{si(watts, 'W')}" for name, watts in powers.items() if watts is not None]
    if last["cost_others_per_h"] is not None:
        known[-1] += f" ({cents(last['cost_others_per_h'], last['currency'])}/h of electricity)"
    yield "server", ", ".join((si(last["power_w"], "W"), *known))
    if last["problem"]:
        yield "", last["problem"]


def _source_fault(source: dict[str, Any]) -> Iterator[Part]:
    if source["last_error"] and not source["stale"]:
        yield "", f"the source fails: {source['last_error']}"


def budget_lines(budget: dict[str, Any]) -> list[str]:
    """Return a budget's status as lines."""
    return _labelled(_budget(budget))


def _budget(budget: dict[str, Any]) -> Iterator[Part]:
    currency, expected = budget["currency"], budget["forecast"]
    words = "" if expected is None else f", forecast {money(expected, currency)}"
    age_s = time.time() - budget["time_ns"] / 1e9
    spent = cents(budget["spent"], currency) if budget["coverage"] else "no costs known"
    words = (
        f"{budget['budget']}: {spent} of {cents(budget['amount'], currency)} for the"
        f" {budget['period']}{words}, {percent(budget['elapsed_share'])} elapsed,"
        f" {percent(budget['coverage'])} covered, as of {ago(age_s)} ago"
    )
    yield "budget", words
    if budget["exceeded"]:
        yield "", f"budget {budget['budget']} is exceeded"
    elif budget["forecast_exceeded"]:
        yield "", f"budget {budget['budget']} will be exceeded"
    yield from (("", f"not included: {short(missing)}") for missing in budget["missing"])


def _notifier(name: str, notifier: dict[str, Any]) -> Iterator[Part]:
    counts = ", ".join(
        f"{notifier[key]} {word}"
        for key, word in (("sent", "sent"), ("queued", "waiting"), ("dropped", "dropped"))
    )
    yield "notifier", f"{name} ({notifier['kind']}): {counts}"
    if notifier["retry_in_s"]:
        yield "", f"retry in {ago(notifier['retry_in_s'])}"
    if notifier["dropped"]:
        yield "", f"last dropped: {notifier['last_dropped']}"


def _alerts(alerts: list[dict[str, Any]]) -> Iterator[Part]:
    firing = [alert for alert in alerts if alert["state"] == "firing"]
    yield "alerts", f"{len(firing)} firing; see costprobe alerts" if firing else "none firing"
    for alert in firing[:3]:
        yield "", f"{alert['severity']}: {in_local_zone(alert['summary'], alert['since_ns'])}"


def _pods(pods: dict[str, Any] | None) -> Iterator[Part]:
    if pods:
        for workload in pods["workloads"]:
            engine = f" ({workload['engine']})" if workload["engine"] else ""
            yield "pods", f"{workload['service']} on {', '.join(workload['devices'])}{engine}"
        if not pods["workloads"]:
            yield "pods", "no container holds a device"


HALF = 0.5
MAX_TENANTS_SHOWN = 5
# A gateway counts a request at its end, which may be in another window than its tokens.
COUNTED_MOST = 1.1
_SPLITS = {
    "measured": "device time",
    "calibrated": "calibration",
    "weights": "token weights",
    "role": "its role in the group",
}


def service_lines(service: dict[str, Any]) -> list[str]:
    """Return the lines of a service, from the JSON of `status`."""
    return _labelled(_service(service, common_scale(_request_prices(service["last"]))))


def _request_prices(last: dict[str, Any] | None) -> list[float | None]:
    """Return the cost of a request and the rolling costs of an inference of a window."""
    if last is None:
        return []
    rolling = [last["rolling"].get(f"rolling_{window}") for window in WINDOWS_S]
    return [(last["cost"] or {}).get("cost_per_request"), *rolling]


def _service(service: dict[str, Any], scale: int) -> Iterator[Part]:
    head = f"{service['service']} ({service['engine']} on {', '.join(service['devices'])})"
    last = service["last"]
    if last is None:
        yield "service", f"{head}: no window is complete yet"
    else:
        yield (
            "service",
            f"{head}: {local(last['time_ns'])}, {ago(last['window_s'])}: {_served(last, service)}",
        )
        if last["cost"]:
            yield "", _cost(last, scale)
        if last["energy"]:
            yield "", _energy(last["energy"])
        if last.get("tenants"):
            yield from _tenants(last)
        yield from _rolling_of_service(last, scale)
        for one in last.get("slo") or ():
            cost = one["cost_per_request_met"]
            price = (
                "" if cost is None else unit_price(cost, last["currency"] or "", scale, "request")
            )
            yield "", slo_words(one) + (f"; {price} within it" if price else "")
        yield from (("", f"no cost: {text}") for text in last["problems"])
    if words := part_words(
        {"service_group": service.get("group") or "", "service_role": service.get("role", "")}
    ):
        yield "", words
    found = service.get("calibration") or {"problem": None, "time_ns": None}
    if found["problem"]:
        yield "", f"not calibrated: {found['problem']}"
    elif found["time_ns"] is not None:
        measured = f"{local(found['time_ns'])} by {found['probe']}"
        yield "", f"calibration: {measured}, {counted(found['in_flight'], 'request')} in flight"
    missing = service["missing"] or (last["missing"] if last else [])
    yield from (("", f"missing counter: {text}") for text in missing)


def _served(last: dict[str, Any], service: dict[str, Any]) -> str:
    parts = [] if last["requests"] is None else [counted(round(last["requests"]), "request")]
    others = (("errors", "failed"), ("tokens_in", "tokens in"), ("tokens_out", "tokens out"))
    parts += [f"{last[key]:,.0f} {word}" for key, word in others if last[key] is not None]
    if last["restarts"]:
        parts.append(f"counters reset {counted(last['restarts'], 'time')}")
    is_elsewhere = service.get("role", "all") != "all" and not last["problems"]
    return ", ".join(parts) or (
        "counted on another host" if is_elsewhere else "no counter was read"
    )


def _cost(last: dict[str, Any], scale: int) -> str:
    cost = last["cost"]
    currency = last["currency"] or ""
    total = f"cost {money(cost['cost_total'], currency)}"
    if cost["idle_share"] is not None:
        total += f" ({percent(cost['idle_share'])} of it while waiting for requests)"
    parts = [total]
    if cost["cost_per_request"] is not None:
        parts.append(unit_price(cost["cost_per_request"], currency, scale, "request"))
    tokens = [
        f"{money(price.amount, currency)} per million {price.which}tokens {price.way}"
        for price in kind_prices(lambda kind: cost.get(f"cost_per_million_tokens_{kind}"))
    ]
    if tokens and cost["token_split"] is not None:
        tokens[-1] += f" (in and out divided by {_SPLITS[cost['token_split']]})"
    parts += tokens
    if words := cache_words(cost.get("cached_share"), cost.get("cost_cache_saved"), currency):
        parts.append(words)
    return ", ".join(parts)


def _tenants(last: dict[str, Any]) -> Iterator[Part]:
    """Yield the tenants with the largest cost, and what is wrong with their counters."""
    tenants, currency = last["tenants"], last["currency"] or ""
    parts = [part for part in tenants["parts"] if part["cost"] > 0]
    shown = []
    for part in parts[:MAX_TENANTS_SHOWN]:
        cached, tokens_in = part.get("cached_tokens"), part.get("tokens_in")
        share = cached / tokens_in if cached and tokens_in else None
        words = cache_words(share, part.get("cost_cache_saved"), currency)
        inside = "; ".join(text for text in (percent(part["cost_share"]), words) if text)
        shown.append(f"{part['tenant']} {money(part['cost'], currency)} ({inside})")
    more = len(parts) - len(shown)
    shown += [f"and {more} more"] if more else []
    if shown:
        yield "", f"tenants: {', '.join(shown)}"
    yield from (("", f"cost unattributed: {text}") for text in tenants["problems"])
    named = [part for part in tenants["parts"] if part["tenant"] != UNATTRIBUTED]
    if named and last.get("cached_tokens") and not any(part.get("cached_tokens") for part in named):
        yield "", "tenants' counters have no cached tokens: all their tokens in have one price"
    if (tenants["counted_share"] or 0.0) > COUNTED_MOST:
        words = (
            f"tenants count {percent(tenants['counted_share'])} of the service's tokens or requests;"
            " their costs are reduced in proportion"
        )
        yield "", words


def _energy(energy: dict[str, Any]) -> str:
    kinds = (
        ("energy_per_request_j", "per request"),
        ("energy_per_million_tokens_in_j", "per million tokens in"),
        ("energy_per_million_tokens_out_j", "per million tokens out"),
    )
    error = energy["energy_rel_err"]
    parts = [
        f"{si(energy[key], 'J', error)} {word}" for key, word in kinds if energy[key] is not None
    ]
    board = ", of the whole board by slices" if energy["energy_scope"] == "parent" else ""
    suspect = ", suspect" if energy["energy_suspect"] else ""
    method = f"{energy['energy_method']} ±{percent(error)}"
    total = f"energy {si(energy['energy_j'], 'J', error)}"
    return f"{', '.join((total, *parts))} ({method}{board}{suspect})"


def outbox_document(sink: SinkStatus) -> dict[str, Any]:
    """Return a sink's progress as JSON; `outbox_lag_s` is the age of the oldest queued point."""
    oldest_ns = sink.backlog.oldest_time_ns
    return {
        "acked_seq": sink.acked_seq,
        "acked_ns": sink.acked_ns,
        "outbox_points": sink.backlog.points,
        "outbox_lag_s": 0.0 if oldest_ns is None else max(0.0, time.time() - oldest_ns / 1e9),
        "sent_points_total": sink.sent_points,
        "rejected_points_total": sink.rejected_points,
        "dropped_points_total": sink.dropped_points,
    }


MILLION = 1_000_000
# What an energy covers, in words.
SCOPES = {"parent": " of the whole board", "module": " of the whole module"}


def probe_line(document: dict[str, Any]) -> str:
    """Return one line of a probe report, from the JSON of `status` and `probe`."""
    if "concurrency" in document["tags"]:
        return _served_line(document)
    parts = [
        f"{document['device']} {document['probe']}",
        " ".join([f"batch {document['batch']}", *_ways(document["tags"])]),
        f"p50 {document['latency_p50_ms']:.3f} ms{_spread(document)}",
        f"{document['throughput_per_s']:,.1f} inf/s",
        _energy_of_run(document, "inf"),
        _cost_of_run(document),
        *_carbon(document),
        *_tokens(document),
        *_limit(document),
    ]
    if document["fields"].get("unsteady"):
        parts.append("unsteady: its time changed within the run")
    if document.get("contended"):
        parts.append(_contended(document))
    return "  ".join(parts)


def _contended(document: dict[str, Any]) -> str:
    """Return how far to trust a run beside other work: how many passes count, and their range."""
    fields, cost = document["fields"], document["cost"]
    words, parts = "contended: others used the device", "from its fastest pass to its slowest part"
    delayed = fields.get("samples_delayed")
    if delayed:
        timed = document["samples"] + delayed
        words += f"; from the {document['samples']:,} of {timed:,} passes that they did not delay"
        parts = "in the parts of these"
    low_ms, high_ms = fields.get("pass_low_ms"), fields.get("pass_high_ms")
    if low_ms is None or high_ms is None:
        return words
    if cost is None:
        return f"{words}; {low_ms:.3f} to {high_ms:.3f} ms a pass, {parts}"
    mean_ms = 1000 * document["batch"] / document["throughput_per_s"]
    low, high = (
        cost["cost_hardware"] * ms / mean_ms + cost["cost_energy"] for ms in (low_ms, high_ms)
    )
    scale, currency = price_scale(high), cost["currency"]
    low_words, high_words = money(low * scale, currency), price_text(high, currency, scale)
    return f"{words}; {low_words} to {high_words}, {parts}"


def _spread(document: dict[str, Any]) -> str:
    """Return how well the median is known within the run, and how runs differ."""
    shares = {
        "within this run": document.get("latency_rel_err"),
        "between runs": document["fields"].get("latency_spread"),
    }
    known = [f"±{percent(share)} {name}" for name, share in shares.items() if share is not None]
    return f" ({', '.join(known)})" if known else ""


def _served_line(document: dict[str, Any]) -> str:
    """Return one line of a probe of a server: a request counts as an inference, or each of its items."""
    fields, batch = document["fields"], document["batch"]
    unit = "req" if batch == 1 else "inf"
    parts = [
        f"{document['device']} {document['probe']}",
        f"concurrency {document['tags']['concurrency']}",
        *([f"{batch} inferences a request"] if batch > 1 else ()),
        f"p50 {document['latency_p50_ms']:.1f} ms",
    ]
    if "ttft_p50_ms" in fields:
        parts.append(f"first token {fields['ttft_p50_ms']:.1f} ms")
    if "tpot_p50_ms" in fields:
        parts.append(f"then {fields['tpot_p50_ms']:.2f} ms per token")
    parts += [
        f"{document['throughput_per_s']:,.2f} {unit}/s",
        _energy_of_run(document, unit),
        _cost_of_run(document),
        *_carbon(document),
    ]
    per_million = (document["cost"] or {}).get("cost_per_million_tokens_out")
    if per_million is not None:
        counted = f" ({CHUNKS})" if fields.get("token_source") == "chunks" else ""
        price = money(per_million, document["cost"]["currency"])
        parts.append(f"{price} per million tokens out{counted}")
    if fields.get("cached"):
        parts.append("cached: a cache of the server answered")
    if fields.get("errors"):
        parts.append(f"{fields['errors']} of {fields['requests']} failed")
    return "  ".join(parts)


def _tokens(document: dict[str, Any]) -> list[str]:
    """Return rate, energy and cost of the tokens of a decoder's prefill or decode."""
    fields, cost = document["fields"], document["cost"] or {}
    parts = []
    for name, words in (("tokens_in", "tokens in"), ("tokens_out", "tokens out")):
        per_s = fields.get(f"{name}_per_s")
        if per_s is None:
            continue
        figures = [f"{significant(per_s)} {words}/s"]
        energy_j = fields.get(f"energy_per_million_{name}_j")
        price = cost.get(f"cost_per_million_{name}")
        if energy_j is not None:
            figures.append(f"{si(energy_j / MILLION, 'J')} per token")
        if price is not None:
            figures.append(f"{money(price, cost['currency'])} per million")
        at_limit = cost.get(f"cost_roofline_per_million_{name}")
        if at_limit is not None:
            figures.append(f"{money(at_limit, cost['currency'])} {_at_limit(fields)}")
        parts.append(", ".join(figures))
    return parts


def _limit(document: dict[str, Any]) -> list[str]:
    """Return the used shares of the board's peaks."""
    fields = document["fields"]
    shares = [
        f"{name.upper()} {percent(fields[f'{name}_pct'] / 100)}"
        for name in ("mfu", "mbu")
        if f"{name}_pct" in fields
    ]
    return [", ".join(shares)] if shares else []


def _at_limit(fields: dict[str, Any]) -> str:
    """Return which peak of the board limits a pass, in words."""
    is_moving = fields["mbu_pct"] >= fields["mfu_pct"]
    return f"at the board's {'bandwidth' if is_moving else 'peak FLOP/s'}"


def _ways(tags: dict[str, str]) -> list[str]:
    """Return the options of a run that differ from the default."""
    return [name if value == "true" else f"{value} {name}" for name, value in sorted(tags.items())]


def _energy_of_run(document: dict[str, Any], unit: str) -> str:
    energy = document["energy"]
    if energy is None:
        return f"no energy ({document['energy_absent'] or 'no energy source'})"
    per_inference_j = energy["energy_per_inference_j"]
    board = SCOPES.get(energy.get("energy_scope"), "")
    suspect = ", suspect" if energy.get("energy_suspect") else ""
    return (
        f"{si(per_inference_j, 'J', energy['energy_rel_err'])}/{unit}{board}"
        f" ({energy['energy_method'].replace('_', ' ')} ±{percent(energy['energy_rel_err'])}{suspect})"
    )


def _cost_of_run(document: dict[str, Any]) -> str:
    cost, price = document["cost"], document["price"]
    if price is None:
        return "no cost (no price for this device; set [[price]])"
    if cost is None:
        return "no cost (electricity is not included and the energy is unknown)"
    each, currency = cost["cost_per_inference"], cost["currency"]
    scale = price_scale(each)
    shown = f"{unit_price(each, currency, scale, unit_of(document))} ({price_words(price)})"
    at_limit = cost.get("cost_roofline")
    if at_limit is None:
        return shown
    return f"{shown}, {money(at_limit * scale, currency)} {_at_limit(document['fields'])}"


def unit_of(document: dict[str, Any]) -> str:
    """Return what a probe's cost is of: a request to a server is one inference or several."""
    is_request = "concurrency" in document["tags"] and document["batch"] == 1
    return "request" if is_request else "inference"


def _carbon(document: dict[str, Any]) -> list[str]:
    carbon = document.get("carbon")
    if carbon is None:
        return []
    stale = ", stale intensity" if carbon["carbon_method"] == "stale" else ""
    each = scale_words(PER_THOUSAND, unit_of(document))
    return [f"{carbon['carbon_per_inference_g'] * PER_THOUSAND:.3g} g CO2e per {each}{stale}"]


def price_words(price: dict[str, Any]) -> str:
    """Return the price behind a cost: "list $6.88/h", "$4.00/h assumed, $2.50 to $9.00/h"."""
    per_hour = cents(Decimal(price["price_rate_per_h"]), price["currency"])
    low, high = price.get("price_rate_low_per_h"), price.get("price_rate_high_per_h")
    if low is not None and high is not None:
        return f"{per_hour}/h {price['plan']}, {range_words(low, high, price['currency'])}"
    return f"{price['plan'].replace('_', ' ')} {per_hour}/h"


def rate_words(price: dict[str, Any]) -> str:
    """Return the price of a device where its plan is named too: "$3.60/h", "$4.00/h, $2.50 to $9.00/h"."""
    per_hour = f"{cents(Decimal(price['price_rate_per_h']), price['currency'])}/h"
    low, high = price.get("price_rate_low_per_h"), price.get("price_rate_high_per_h")
    if low is None or high is None:
        return per_hour
    return f"{per_hour}, {range_words(low, high, price['currency'])}"


def range_words(low: str, high: str, currency: str) -> str:
    """Return the range of an assumed price: "$2.50 to $9.00/h"."""
    least, most = (cents(Decimal(rate), currency) for rate in (low, high))
    return f"{least if least == most else f'{least} to {most}'}/h"
