"""Lines for a sink, as the daemon hands them over."""


def send(sink, lines):
    """Packs them and posts them; raises what the sink raises."""
    sink.post(sink.pack(lines))
