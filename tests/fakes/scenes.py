"""Daemon configurations that several tests share."""

from pathlib import Path

WORKER = Path(__file__).parent / "worker_python"
QUICK = '[telemetry]\nevery = "50ms"\n'
# With a status document that is as recent.
QUICK_STATUS = f'{QUICK}[alerting]\nevaluate_every = "500ms"\n'
OWNED = """
[[price]]
plan = "owned"
purchase_price = 8760
lifetime = "1y"
[electricity]
tariff_per_kwh = 0.36
"""
GPU_PROBE = f"""
[probing]
duty = 1
[[probe]]
name = "steady"
every = "1h"
batch = 4
python = "{WORKER}"
"""
