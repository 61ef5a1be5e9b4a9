"""What changed, and why.

Answers: persistent shifts and outliers of a series of a probe or a service; since when, how much,
with which exact parts and correlated signals; why a series differs between two periods.
Reads: rows of the series, one by one as they are stored (or again, for a replay), `[detection]`.
Writes: nothing but annotations; its events are returned and stored by `alerts/watching`.

Open `monitor` first: one detector for each series. `normal` and `detector` find the shift,
`runs`, `before_after` and `causes` explain it, `production` and `load_model` do so for a
service, and `message` and `events` write it down. `explain` and `periods` answer `costprobe explain`.
"""
