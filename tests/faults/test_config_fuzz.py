"""The daemon's reload of damaged configuration files; tests/fuzz has the same for commands."""

import random
import signal

import pytest
from fakes.scenes import QUICK
from fakes.sizes import SEED, TIMEOUT_S, sized


@pytest.mark.timeout(TIMEOUT_S)
def test_daemon_survives_reloads_of_damaged_files(daemon_in, gpus_of, figures):
    """Each file is damaged differently; the daemon keeps the last valid configuration."""
    rng = random.Random(SEED)
    daemon = daemon_in(**gpus_of(1).env())
    daemon.start(QUICK)
    daemon.wait_for(lambda: daemon.points("device"))
    good = daemon.config.read_bytes()
    reloads = sized(5, 500)
    for number in range(reloads):
        broken = bytearray(good)
        broken[rng.randrange(len(broken)) :] = rng.randbytes(rng.randint(1, 40))
        daemon.config.write_bytes(bytes(broken) + b"\n[ = ")
        daemon.signal(signal.SIGHUP)
        daemon.wait_for(
            lambda wanted=number + 1: (
                len([e for e in daemon.points("event") if e.fields["cause"] == "configuration"])
                >= wanted
            )
        )
    before = len(daemon.points("device"))
    daemon.wait_for(lambda: len(daemon.points("device")) > before)
    daemon.config.write_bytes(good)
    daemon.signal(signal.SIGHUP)
    daemon.wait_for(lambda: "reloaded" in daemon.output.read_text())
    assert "Traceback" not in daemon.output.read_text()
    figures("configuration files fuzzed", rejected_reloads=reloads, tracebacks=0)
