import json
import os
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import pytest
from fakes.nvml import FakeNvml
from fakes.sensing import sensor_settings

REPOSITORY = Path(__file__).parents[3]
QUICK = {"every_s": 0.05, "aggregate_s": 0.25, "deadline_s": 1.0, "cpu": False}


class ChildSession:
    """A real sensor child, its lines collected as they come."""

    def __init__(self, env, settings):
        self.messages = []
        self._arrived = threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "costprobe.adapters.sensors.child.main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), **env},
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        quarantined_s = settings.pop("quarantined_s", {})
        wanted = asdict(sensor_settings(**settings))
        self.send({"settings": wanted, "quarantined_s": quarantined_s})

    def _read(self):
        for line in self.process.stdout:
            with self._arrived:
                self.messages.append(json.loads(line))
                self._arrived.notify_all()

    def send(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def wait_for(self, kind, timeout_s=60.0, since=0, **values):
        """The first message of a type, with these values, after `since` messages."""

        def found():
            return next(
                (
                    message
                    for message in self.messages[since:]
                    if message["type"] == kind
                    and all(message.get(key) == value for key, value in values.items())
                ),
                None,
            )

        with self._arrived:
            if not self._arrived.wait_for(found, timeout_s):
                raise TimeoutError(f"no {kind} {values} among {self.messages}")
            return found()

    def known(self):
        """The devices, and what is known of the drivers, once the child has written its handshake."""
        handshake = self.wait_for("handshake")
        return handshake | {"devices": [message["device"] for message in self.taken("device")]}

    def taken(self, kind):
        """The messages of a type so far."""
        with self._arrived:
            return [message for message in self.messages if message["type"] == kind]

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)
        self._reader.join()
        self.stderr = self.process.stderr.read().decode()
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.fixture
def start_child():
    """Starts sensor children; each must end when its input closes, and write nothing to stderr."""
    sessions = []

    def start(env=None, **settings):
        session = ChildSession(env or {"LD_LIBRARY_PATH": "/nonexistent"}, {**QUICK, **settings})
        sessions.append(session)
        return session

    yield start
    for session in sessions:
        session.close()
    assert [session.stderr for session in sessions] == [""] * len(sessions)


@pytest.fixture
def simulated(fake_nvml):
    """Two GPUs of a fake driver in this process, in simulated time."""
    fake = fake_nvml(gpus=2, simulated_utc_ns=1_780_000_000 * 10**9)
    with fake.in_this_process():
        yield fake


@pytest.fixture
def fake_nvml(tmp_path):
    def build(gpus=1, **options):
        return FakeNvml(tmp_path, gpus, **options)

    return build
