"""Whether the first answer of `savings` carries the next week of recorded demand.

Each series of a folder (as of `forecast.py --real`) loads eight devices, which its highest hour so far keeps
busy to 80 %. From 1 to 4 weeks `savings` decides, and its first answer is replayed on the week after. Exit
code 1 if one lacks capacity in more than 2 % of that week's hours.
"""

from __future__ import annotations

import argparse
import sys
from array import array
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

from costprobe.core.hours import MINUTES, DeviceHistory, Hour
from costprobe.core.periods import HOUR_NS, HOURS_A_WEEK
from costprobe.core.records import Device
from costprobe.pricing.plans import Rate
from costprobe.savings.evidence import History
from costprobe.savings.savings import Answer, savings
from costprobe.savings.supply import DevicePrice, tested
from costprobe.savings.workload import HourLoad
from forecast import real_demand

DEVICES, BUSY = 8, 0.8
SHORT_SHARES = (0.01, 0.02, 0.05)


def answer_of(first: int, loads: list[float]) -> Answer:
    """Return the answer for eight devices with these loads by hour, in busy devices."""
    end_ns = (first + len(loads)) * HOUR_NS
    names = [f"gpu{index}" for index in range(DEVICES)]
    hours = {}
    for number, load in enumerate(loads, first):
        share = min(1.0, load / DEVICES)
        hours[number] = Hour(
            minutes=(1 << MINUTES) - 1,
            util_pct_s=100 * share * 3600,
            util_s=3600.0,
            busy_s_by_minute=array("f", [60 * share] * MINUTES),
        )
    devices = {name: DeviceHistory(Device(name, "gpu", name, "T4"), end_ns) for name in names}
    for device in devices.values():
        device.hours.update(hours)
        device.mem_used_bytes_max, device.mem_total_bytes = 1, DEVICES**2
    rate = Rate("on_demand", "USD", Decimal("3.6"), True, "bench")
    prices = {name: [DevicePrice("on_demand", rate)] for name in names}
    found = savings(History(devices, prices=prices, zone=ZoneInfo("UTC")))
    return next(answer for answer in found if len(answer.workload.devices) == DEVICES)


def main() -> None:
    """Print how many first answers carry the next week."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", type=Path, metavar="FOLDER", required=True)
    options = parser.parse_args()
    series = list(real_demand(options.real))
    print("weeks  next weeks  answers  mean saving  lack in > 1 %  > 2 %  > 5 %")
    failed = 0
    for weeks in (1, 2, 3, 4):
        nexts, saved, lacks = 0, [], []
        for demand in series:
            for now in range(
                weeks * HOURS_A_WEEK, len(demand.peaks) - HOURS_A_WEEK + 1, HOURS_A_WEEK
            ):
                begin = now - weeks * HOURS_A_WEEK
                unit = DEVICES * BUSY / max(demand.peaks[begin:now])
                loads = [unit * peak for peak in demand.peaks[begin : now + HOURS_A_WEEK]]
                answer = answer_of(demand.first + begin, loads[:-HOURS_A_WEEK])
                nexts += 1
                if answer.best is None or answer.now is None:
                    continue
                saved.append(float(answer.best.saving_per_month / answer.now.cost_per_month))
                week = {
                    number: HourLoad(load, load)
                    for number, load in enumerate(loads[-HOURS_A_WEEK:], demand.first + now)
                }
                result = tested(week, answer.workload, answer.best.choice)
                lacks.append(result.hours_short / result.hours)
        counts = [sum(lack > share for lack in lacks) for share in SHORT_SHARES]
        failed += counts[1]
        mean = sum(saved) / len(saved) if saved else 0.0
        print(
            f"{weeks:5d} {nexts:11d} {len(saved):8d} {mean:12.0%} {counts[0]:14d} {counts[1]:6d}"
            f" {counts[2]:6d}"
        )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
