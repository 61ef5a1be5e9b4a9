"""Assumed prices of a device-hour, used until a price is configured.

On-demand list prices of AWS EC2 (Linux, us-east-1), published mid 2025, divided by the instance's
accelerators or vCPUs. They are for demo mode and match no bill: every figure computed with them has
the plan `assumed`.
"""

from __future__ import annotations

from decimal import Decimal

from costprobe.core.records import Device
from costprobe.domain.pricing.rate import Rate

PLAN = "assumed"
_LIST_NAME = "AWS on-demand list price, mid 2025"
# Part of the product name, share of an instance, USD per device-hour. The first match counts, so a
# longer name precedes a shorter name that it contains.
_GPU_LIST: tuple[tuple[str, str, Decimal], ...] = (
    ("B200", "1/8 p6-b200.48xlarge", Decimal("14.2416")),
    ("H200", "1/8 p5en.48xlarge", Decimal("7.912")),
    ("H100", "1/8 p5.48xlarge", Decimal("6.88")),
    ("A100-SXM4-80GB", "1/8 p4de.24xlarge", Decimal("3.4309")),
    ("A100", "1/8 p4d.24xlarge", Decimal("2.7447")),
    ("L40S", "g6e.xlarge", Decimal("1.861")),
    ("L4", "g6.xlarge", Decimal("0.8048")),
    ("A10G", "g5.xlarge", Decimal("1.006")),
    ("V100", "p3.2xlarge", Decimal("3.06")),
    ("T4", "g4dn.xlarge", Decimal("0.526")),
)
_VCPU_INSTANCE, _VCPU_PER_HOUR = "1/2 c7i.large", Decimal("0.044625")
_UNKNOWN_GPU_PER_HOUR = Decimal(1)


def assumed_rate(device: Device, logical_cpus: int) -> Rate:
    """Return the assumed list price of a device, with its source.

    Args:
        device: The device; its product name selects the price.
        logical_cpus: Number of vCPUs that a CPU device stands for.
    """
    if device.is_host:
        source = f"{logical_cpus} vCPU at {_VCPU_PER_HOUR} ({_VCPU_INSTANCE}, {_LIST_NAME})"
        return _rate(logical_cpus * _VCPU_PER_HOUR, source)
    words = device.model.replace("-", " ").split()
    for name, instance, per_hour in _GPU_LIST:
        if name in device.model if "-" in name else name in words:
            return _rate(per_hour, f"{instance} ({_LIST_NAME})")
    return _rate(
        _UNKNOWN_GPU_PER_HOUR, f"no list price known for {device.model}: a placeholder of 1 USD"
    )


def _rate(per_hour: Decimal, source: str) -> Rate:
    parts = (("rent", per_hour),)
    return Rate(
        PLAN,
        "USD",
        per_hour,
        electricity_included=True,
        source=source,
        parts=parts,
        origins=("list price",),
    )
