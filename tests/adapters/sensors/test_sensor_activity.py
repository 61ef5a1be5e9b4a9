"""The conditions of a device in a window, by hand, from samples of the seconds around it."""

import json
from dataclasses import asdict

from costprobe.adapters.sensors.messages import Sample, activity_between
from record.record_files import check_outcomes

S = 10**9


def conditions(text):
    """The known conditions of a case."""
    case = json.loads(text)
    log = [
        Sample(t_ns=int(one.pop("t_s") * S), **one | {"pids": pids_of(one)})
        for one in case["samples"]
    ]
    start_ns, end_ns = (int(t_s * S) for t_s in case["window_s"])
    util_pct = case.get("util_pct")
    more = {"every_ns": case["every_s"] * S} if "every_s" in case else {}
    if util_pct is not None:
        more["util_pct"] = {int(pid): pct for pid, pct in util_pct.items()}
    found = asdict(activity_between(log, start_ns, end_ns, case["own"], **more))
    return {name: value for name, value in found.items() if value is not None}


def pids_of(sample):
    return tuple(sample["pids"]) if "pids" in sample else None


def test_conditions_are_those_of_the_time_of_the_window():
    """Other processes, quick samples, throttling, clocks, temperature and memory; see `record_files`."""
    check_outcomes("activities.json", conditions)
