"""Servers that take turns on one GPU, with a real daemon, real processes and a scripted driver."""

import shutil
import subprocess
from collections import Counter
from contextlib import contextmanager

import pytest
from fakes.scenes import OWNED, QUICK_STATUS
from fakes.serving_engine import ServingEngine

NOT_SUPPORTED = 3


@contextmanager
def process(folder, name):
    """Run a process of this name, as the kernel states it."""
    program = shutil.copy(shutil.which("sleep"), folder / name)
    running = subprocess.Popen([program, "600"])
    try:
        yield running.pid
    finally:
        running.kill()
        running.wait()


def service(name, url, share):
    return (
        f'[[service]]\nname = "{name}"\nurl = "{url}"\nengine = "vllm"\ndevices = ["gpu0"]\n'
        f'processes = ["{name}-engine"]\nshare = "{share}"\nevery = "250ms"\nwindow = "1s"\n'
    )


def test_servers_on_one_gpu_pay_for_their_busy_time_or_else_by_share(daemon_in, gpus, tmp_path):
    with (
        ServingEngine().over_http() as server,
        ServingEngine().over_http() as other,
        process(tmp_path, "chat-engine") as chat,
        process(tmp_path, "rank-engine") as rank,
    ):
        gpus.gpus[0].set(util_pct=40)
        gpus.gpus[0].keep_busy({chat: 30, rank: 10})
        daemon = daemon_in(**gpus.env())
        services = service("chat", server.url, "50%") + service("rank", other.url, "30%")
        daemon.start(QUICK_STATUS + OWNED + services)

        def is_divided(**expected):
            """Whether the cost of a window was divided so; the rest belongs to no service."""
            windows = {}
            for row in daemon.points("allocation", device="gpu0"):
                costs = windows.setdefault(row.time_ns, Counter())
                costs[row.tags.get("service")] += row.fields["cost"]
            return any(
                all(
                    costs[name] / costs.total() == pytest.approx(share)
                    for name, share in expected.items()
                )
                for costs in windows.values()
            )

        daemon.wait_for(lambda: is_divided(chat=0.75, rank=0.25))
        gpus.gpus[0].keep_busy({chat: 30})
        daemon.wait_for(lambda: is_divided(chat=1.0, rank=0.0))
        gpus.fail("nvmlDeviceGetProcessUtilization", NOT_SUPPORTED)
        daemon.wait_for(lambda: is_divided(chat=0.5, rank=0.3))
