"""A model for TorchServe: it answers after a while, and fails where the request says so."""

import time

SLOW_S = 0.01


def handle(data, context):
    """Answer each request of a batch."""
    if data is None:
        return None
    bodies = [str(request.get("data") or request.get("body")) for request in data]
    time.sleep(SLOW_S)
    if "fail" in bodies:
        raise RuntimeError("made to fail")
    return bodies
