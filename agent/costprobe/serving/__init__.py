"""What a request and a token cost in production, counted.

Answers: requests and tokens of a window by a server's own counters; the devices' cost of the
window, divided exactly among services, idle time, probes and the remainder; cost, energy and
carbon per request and token, by model and tenant.
Reads: `[[service]]`, `[kubernetes]`, metrics pages (through `adapters/engines`), the kubelet, and
charges and energy of `devices`.
Writes: rows of `serving`, `slo`, `cost`, `allocation` and `tenant`, events of endpoints, and the last
window of each service.

Open `service` first: it scrapes, closes windows and stores them. `device_costs` and `allocation`
divide the cost; `tokens` has the weights of tokens, and the calibration.
"""
