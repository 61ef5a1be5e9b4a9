"""How many steps of a model decode, from what a client sees."""

from __future__ import annotations


def decode_steps(decoded: float, gap_s: float, window_s: float, in_flight: int) -> float:
    """Estimate the steps of a window that decode.

    Between two tokens of an answer is one step, which all answers in generation share. With that many
    in generation on average, and each request by itself, some steps have none.

    Args:
        decoded: Generated tokens but the first of each request.
        gap_s: Mean time between two chunks of an answer; 0 if they arrive together, or if there is one.
        window_s: Length of the window.
        in_flight: Requests in flight.
    """
    if not gap_s:
        return decoded  # answers whose generation takes no time do not overlap
    decoding = min(1.0, decoded * gap_s / window_s / in_flight)
    return (1 - (1 - decoding) ** in_flight) * window_s / gap_s
