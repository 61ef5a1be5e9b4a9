"""A disaggregated server in simulated time, whose device time of prefill and of decode is known.

Each device of the prefill pool computes one prompt after another; each of the decode pool takes the KV caches that have
arrived and decodes them as one batch. The times of passes are those of `batching_llm`.
"""

import heapq
import random
from collections import Counter, defaultdict, deque

from fakes.batching_llm import CONTEXT_TOKEN_S, PROMPT_S, STEP_S, TOKEN_IN_S, TOKEN_OUT_S
from fakes.disaggregated import KV_BYTES

LINK_BYTES_PER_S = 25e9


class Pool:
    """The devices of one pool, and what they did in each window, of which the first is 0.

    Attributes:
        devices: Number of devices.
        counts: What passes that ended in a window counted, by window.
        busy_s: Device seconds of passes, by window.
    """

    def __init__(self, devices, window_s):
        self.devices, self._window_s = devices, window_s
        self.counts, self.busy_s = defaultdict(Counter), defaultdict(float)

    def add(self, begin_s, end_s, **counted):
        """Add a pass, which is shorter than a window."""
        first, last = int(begin_s // self._window_s), int(end_s // self._window_s)
        before_s = min(end_s, (first + 1) * self._window_s) - begin_s
        self.busy_s[first] += before_s
        self.busy_s[last] += end_s - begin_s - before_s
        self.counts[last].update(counted)


def served(devices, *, per_s, until_s, window_s, seed=1):
    """Serve requests with random times and lengths; return the pools of prefill and of decode.

    Args:
        devices: Number of devices of each pool.
        per_s: Mean number of requests a second.
        until_s: Time of the last one.
        window_s: Length of the windows.
        seed: Of the random times and lengths.
    """
    rng = random.Random(seed)
    prefill, decode = (Pool(count, window_s) for count in devices)
    free_s = [0.0] * prefill.devices
    arrived = []
    now_s = 0.0
    while (now_s := now_s + rng.expovariate(per_s)) < until_s:
        tokens_in, tokens_out = rng.randrange(200, 3000), rng.randrange(20, 200)
        begin_s = max(now_s, heapq.heappop(free_s))
        done_s = begin_s + PROMPT_S + TOKEN_IN_S * tokens_in
        heapq.heappush(free_s, done_s)
        prefill.add(begin_s, done_s, requests=1, tokens_in=tokens_in, tokens_out=1)
        arrived.append((done_s + tokens_in * KV_BYTES / LINK_BYTES_PER_S, tokens_in, tokens_out))
    arrived.sort()
    for device in range(decode.devices):
        _decode(deque(arrived[device :: decode.devices]), decode)
    return prefill, decode


def _decode(waiting, pool):
    """Decode requests on one device, with all that have arrived in each step."""
    running, now_s = [], 0.0
    while waiting or running:
        if not running:
            now_s = max(now_s, waiting[0][0])
        while waiting and waiting[0][0] <= now_s:
            _, tokens_in, tokens_out = waiting.popleft()
            running.append([tokens_in, tokens_in, tokens_out])
        step_s = STEP_S + TOKEN_OUT_S * len(running)
        step_s += CONTEXT_TOKEN_S * sum(context for _, context, _ in running)
        begin_s, now_s = now_s, now_s + step_s
        for one in running:
            one[1] += 1
            one[2] -= 1
        done = [one for one in running if not one[2]]
        read = sum(one[0] for one in done)
        pool.add(begin_s, now_s, tokens_out=len(running), requests=len(done), tokens_in=read)
        running = [one for one in running if one[2]]
