"""The commented configuration file that `infercost config init` writes."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from agent.model import Device
from agent.pricing.assumed import assumed_rate

_HEAD = """\
# infercost: what one inference costs on this host. Every key is optional but those without a
# default. After a change: infercost config check, then reload the service (SIGHUP).
# Durations are text such as "5m"; money is exact, write it with as many digits as it has.

[host]
# name = "gpu-01"               # the tag `host` of every series; the host name by default
# labels = { rack = "a1" }      # further tags

[probing]
duty = "1%"                     # at most this share of a device's time goes into probing

"""
_PROBE = """\
[[probe]]
name = "transformer"
kind = "transformer"            # "transformer", "cnn", "module" with your own model, or
                                #   "torchvision:resnet50", "timm:NAME", "transformers:/folder",
                                #   "torchscript:/file", "pt2:/file": see docs/measurement.md
# module = "shop.models:ranker" #   a factory that returns (torch module, example inputs)
devices = "all"                 # or a list: ["gpu0"]
dtype = "{dtype}"
batch = "auto"                  # the best throughput within latency_bound, or a number
# latency_bound = "50ms"
every = "5m"                    # at :00, :05, ... on every host
# stagger = "30s"               # spreads hosts that share a power feed
# python = "/opt/serving/bin/python"  # measure under the serving stack's own interpreter
# when_busy = "defer"           # or "skip", or "run": what to do beside others' work
# quality = 0.91                # your own measure of its answers, for infercost compare

# A server that runs already, asked as its clients ask it:
# [[probe]]
# name = "chat"
# kind = "openai"               # or "kserve"
# url = "http://127.0.0.1:8000"
# model = "llama"
# devices = ["gpu0"]            # whose energy and price it is
# concurrency = 4

"""
_SERVICE = """\
# A serving process: what its requests and tokens really cost, idle time included.
# [[service]]
# name = "chat"
# url = "http://127.0.0.1:8000" # its metrics; a list for several replicas
# engine = "vllm"               # or "sglang", "tgi", "triton", "torchserve", "kserve", "generic"
# devices = ["gpu0"]            # all that it holds

"""
_PRICE = """\
# What the host costs. {assumption}
# That is an assumption until you put your own price here.
[[price]]
plan = "on_demand"
per_hour = {per_hour}{pad}# of the whole host; add device = "gpu0" for one device
currency = "USD"
# valid_from = 2026-01-01       # several plans form a history; the past keeps its price
# electricity_included = true

# Rented for a term, or at a price that moves:
# [[price]]
# plan = "reserved"
# per_hour = 2.176              # the list price, which holds again after the term
# discount = 0.4                # or effective_per_hour = 1.306
# upfront = 1000
# term = "1y"
# valid_from = 2026-01-01
#
# [[price]]
# plan = "spot"
# file = "/var/lib/spot/price.csv"  # lines of time,per_hour; or command = ["..."], or url = "..."

# A machine of your own instead:
# [[price]]
# plan = "owned"
# purchase_price = 15000
# residual_value = 1500
# lifetime = "3y"
# monthly_costs = 120           # colocation, staff
#
# [electricity]                 # for plans that do not include it
# tariff_per_kwh = 0.12
# pue = 1.4
#
# [carbon]                      # grams of CO2-equivalent beside the money
# g_per_kwh = 380               # or file, command or url: intensities over time

"""
_SINK = """\
# [[sink]]
# api = "v2"                    # InfluxDB 2.x and 3.x, VictoriaMetrics
# url = "http://127.0.0.1:8086"
# org = "ml"
# bucket = "infercost"
# token_file = "/etc/infercost/influxdb.token"
#
# [[sink]]
# name = "influxdb1"
# api = "v1"                    # InfluxDB 1.x
# url = "http://127.0.0.1:8086"
# database = "infercost"
# user = "infercost"
# password_file = "/etc/infercost/influxdb.password"

# Who is told of drifts, faults and budgets. The built-in rules need no table of their own:
# docs/alerting.md lists them, and a [[rule]] of the same name takes one's place.
# [[notifier]]
# name = "pager"
# kind = "alertmanager"         # or "webhook", or "apprise": mail, Slack, Teams, PagerDuty, ...
# url = "http://127.0.0.1:9093"
#
# [[budget]]                    # of the host; or device = "gpu0", or service = "chat"
# name = "gpus"
# amount = 1800
# period = "month"              # or "day"
# timezone = "UTC"
#
# [[rule]]
# name = "slow"
# kind = "slo"
# within_ms = 12
# objective = "99%"

[store]
# path = "/var/lib/infercost/infercost.db"
retention = "7d"                # rows as they were measured
rollup_1m_retention = "30d"     # then one a minute; until then probe and cost rows stay as they are
rollup_1h_retention = "1095d"   # then one an hour; events and alerts stay as long
"""


def render(devices: Sequence[Device], logical_cpus: int) -> str:
    """The file's text for the devices of this host.

    Args:
        devices: What was found; the price is the sum of their assumed list prices.
        logical_cpus: vCPUs of the host.
    """
    rated = [(device, assumed_rate(device, logical_cpus)) for device in devices]
    accelerators = [entry for entry in rated if entry[0].kind != "cpu"]
    priced = accelerators or rated
    total = sum((rate.per_hour for _, rate in priced), Decimal(0)) or Decimal(1)
    per_hour = f"{total.normalize():f}"
    found = "".join(f"# Found: {device.name}, {device.model}\n" for device in devices)
    assumption = "; ".join(sorted({rate.source for _, rate in priced})) or "No device was found."
    return (
        _HEAD
        + found
        + _PROBE.format(dtype="bf16" if accelerators else "fp32")
        + _SERVICE
        + _PRICE.format(
            assumption=f"Taken from: {assumption}.",
            per_hour=per_hour,
            pad=" " * max(1, 21 - len(per_hour)),
        )
        + _SINK
    )
