"""The command explain: exact parts, causes and events between two periods."""

import math

from costprobe.core.records import NS_PER_S, Event
from costprobe.core.schema import event_point
from fakes import rows
from fakes.cli import session
from fakes.page_examples import missing_lines

S = NS_PER_S
HOUR_S = 3600
NOON_NS = 1_772_452_800 * S  # 2 March 2026, noon
PERIODS = ("--between", "2026-03-02T12:00Z", "2026-03-03T12:00Z")
PERIODS += ("--and", "2026-03-04T12:00Z", "2026-03-05T12:00Z")
END_NS = NOON_NS + 96 * HOUR_S * S
HOST = {"host": "h"}


def window(service, device, end_ns, held_s, busy_s, tokens):
    """A window of an hour, in which the devices that a service holds cost 1.00 for 1,000 s."""
    tags = {**HOST, "service": service, "device": device, "currency": "EUR"}
    cost = held_s / 1000
    used = {"device_s": held_s, "device_busy_s": busy_s, "cost_idle": (held_s - busy_s) / 1000}
    counts = {"tokens_out": tokens, "requests": tokens / 1000, "inferences": tokens / 1000}
    paid = {"cost_total_hardware": cost, "cost_total_energy": 0.0, "cost_tokens_out": cost}
    return rows.window_cost(tags, end_ns, HOUR_S, cost, **used, **counts, **paid)


def rows_of(hour):
    """From the second day on a probe is a tenth slower at a higher price, a service has half of the tokens, and
    those of another take 30 % longer."""
    is_late = hour >= 36
    at_ns, end_ns = (NOON_NS + number * HOUR_S * S for number in (hour, hour + 1))
    slow = 1.1 if is_late else 1.0
    tags = {**HOST, "device": "gpu0", "probe": "ranker"}
    time_s = 1e-3 * slow * (1 + 1e-4 * (hour % 3))
    yield rows.run(tags, at_ns, time_s * 8000, sm_clock_mhz=1980 / slow, fingerprint="f")
    yield rows.run_cost(tags, at_ns, time_s * (0.002 if is_late else 0.001), currency="EUR")
    tokens = 5e5 if is_late else 1e6
    yield window("chat", "gpu0", end_ns, HOUR_S, HOUR_S * tokens / 2e6, tokens)
    busy_s = HOUR_S * (0.65 if is_late else 0.5) * (1 + 0.01 * math.sin(hour))
    yield window("batch", "gpu1", end_ns, 1.5 * busy_s, busy_s, 1e6)
    limit_w = 500.0 if is_late else 700.0
    limited = {"power_limit_w": limit_w, "sm_clock_mhz": 1980.0 * (limit_w / 700)}
    yield rows.device({**HOST, "device": "gpu1"}, end_ns - S, 60, 3.6, 300.0, **limited)


def test_explanations_of_a_probe_and_two_services_are_as_recorded(costprobe):
    """A slower probe at a higher price, half of the tokens, and a lower power limit."""
    costprobe.write('[host]\nname = "h"\n')
    notes = [
        event_point(Event("annotation", "info", text, NOON_NS + hours_ns, subject=subject), HOST)
        for hours_ns, text, subject in (
            (int(35.5 * HOUR_S) * S, "deployed v42", {"service": "chat"}),
            (80 * HOUR_S * S, "later", {}),
        )
    ]
    costprobe.append(*map(rows_of, range(72)), notes, time_ns=END_NS)
    session("explain", costprobe.config)
    text = costprobe("explain", *PERIODS)
    assert missing_lines("alerting.md", text, having="costprobe explain") == []


def test_what_costs_nothing_is_no_error(costprobe):
    costprobe.write('[host]\nname = "h"\n')
    own = {**HOST, "device": "gpu0", "probe": "free"}
    for hour in range(96):
        at_ns = NOON_NS + hour * HOUR_S * S
        run = rows.run(own, at_ns, 12.0 if hour < 48 else 15.0)
        costprobe.append([run, rows.run_cost(own, at_ns, 0.0)], time_ns=END_NS)
    words = "time per inference of free on gpu0 is +25.0 %"
    assert words in costprobe("explain", *PERIODS)
    assert words not in costprobe("report", "--since", "2026-03-02", "--until", "2026-03-07")
