"""A valid configuration file with a table of most kinds."""

FULL = """
[host]
name = "h1"
labels = { rack = "a1" }
[telemetry]
every = "2s"
cpu = "auto"
[probing]
duty = "2%"
[store]
path = "/tmp/costprobe-fuzz/costprobe.db"
outbox_retention = "180d"
[http]
listen = "127.0.0.1:9177"
[alerting]
evaluate_every = "30s"
[electricity]
tariff_per_kwh = 0.31
pue = 1.4
timezone = "Europe/Berlin"
[[probe]]
name = "encoder"
kind = "transformer"
every = "90s"
dtype = "bf16"
batch = 8
latency_bound = "50ms"
memory_cap = "4GiB"
devices = ["gpu0"]
[[probe]]
name = "chat"
kind = "openai"
url = "http://127.0.0.1:8000"
model = "m"
[[price]]
plan = "on_demand"
per_hour = 2.176
currency = "USD"
[[price]]
plan = "owned"
device = "gpu1"
purchase_price = "15000.10"
lifetime = "3y"
valid_from = 2026-06-01
[[sink]]
name = "one"
api = "v1"
url = "http://127.0.0.1:8086"
database = "d"
[[sink]]
name = "two"
api = "v2"
url = "https://db:8086"
org = "o"
bucket = "b"
token = "file:/etc/costprobe/token"
[[rule]]
name = "hot"
kind = "threshold"
measurement = "device"
field = "temp_c"
above = 85
[[notifier]]
name = "ops"
kind = "webhook"
url = "https://127.0.0.1/hook"
[[maintenance]]
name = "nights"
match = { device = "gpu0" }
start = "22:00"
end = "06:00"
"""
