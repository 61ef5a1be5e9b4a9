"""A load curve ends when the latency of production rises above its level before."""

import threading
from pathlib import Path

import pytest
from costprobe.adapters.engines.exposition import ScrapeError
from costprobe.adapters.engines.scrape import LATENCIES, LatencyTotal, read_latency
from costprobe.serving.latency_watch import LatencyWatch, ProductionWatch, watched
from fakes.services import service


def test_latency_is_compared_with_its_level_before():
    watch = LatencyWatch(1.5)
    watch.begin((100.0, 1000.0), (102.0, 1010.0))  # 0.2 s
    assert watch.level == pytest.approx(0.2)
    # With too few requests they count with the next ones; at last the server restarted.
    readings = ((103.0, 1015.0), (105.0, 1016.0), (107.0, 1019.0), (0.5, 3.0), (1.5, 8.0))
    assert [*map(watch.update, readings)] == [None, None, pytest.approx(5.0), None, None]
    unused = LatencyWatch(1.5)
    unused.begin((100.0, 1000.0), (100.5, 1002.0))
    assert (unused.level, unused.update((400.0, 1100.0))) == (None, None)


def readings(*values, then=None):
    """A reading for each call; after them an error, or the last one."""
    left = list(values)
    used_up = threading.Event()

    def read():
        if len(left) > 1 or (left and then is not None):
            return LatencyTotal(*left.pop(0))
        used_up.set()
        if then is not None:
            raise then
        return LatencyTotal(*left[0])

    return read, used_up


def watching(read):
    return ProductionWatch([("chat", read)], 1.5, lambda _: None, base_s=0.0, poll_s=0.001)


def test_curve_ends_when_latency_rises_or_cannot_be_read():
    slow, slow_read = readings((1.0, 10.0), (2.0, 20.0), (8.0, 30.0))
    gone, gone_read = readings((1.0, 10.0), (2.0, 20.0), then=ScrapeError("refused"))
    fine, fine_read = readings((1.0, 10.0), (2.0, 20.0), (3.0, 30.0))
    found = {}
    runs = {"slow": (slow, slow_read), "gone": (gone, gone_read), "fine": (fine, fine_read)}
    for name, (read, used_up) in runs.items():
        watch = watching(read)
        with watch:
            assert watch.in_production == ["chat"]
            assert used_up.wait(60)
        # The thread has ended: a reading that it began is evaluated.
        if watch.why_stop:
            found[name] = watch.why_stop
    assert found.pop("slow").endswith("its latency rose to 6.0 times the level before the load")
    assert set(found) <= {"gone"}


def test_service_that_cannot_be_read_prevents_the_load():
    read, _ = readings(then=ScrapeError("refused"))
    with pytest.raises(ScrapeError, match="cannot be watched"), watching(read):
        pass


def test_latency_is_read_from_the_metrics_of_each_engine():
    folder = Path(__file__).parents[1] / "adapters" / "engines" / "exposition"
    recorded = ("vllm", "sglang", "tgi", "kserve", "mlserver", "triton", "torchserve")
    found = {}
    for engine in recorded:
        body = (folder / f"{engine}.txt").read_bytes()
        found[engine] = read_latency(service(engine, engine=engine), lambda _, body=body: body)
    assert found == {
        "vllm": (38.2, 608), "sglang": (2351.9, 15301), "tgi": (3120.5, 1000),
        "kserve": (4.25, 250), "mlserver": (1.0392556340011652, 68), "triton": (62e6, 5000),
        "torchserve": (25e6, 400),
    }  # fmt: skip
    assert set(recorded) <= set(LATENCIES)
    assert read_latency(service("vllm"), lambda _: b"# nothing yet\n") == (0, 0)


def test_services_on_the_devices_are_watched():
    services = [service("vllm"), service("llamacpp", engine="llamacpp")]
    assert [name for name, _ in watched(services, ["gpu0"])] == ["vllm"]
    assert watched(services, ["gpu1"]) == []
