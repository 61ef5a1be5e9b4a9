"""The daemon's requests about a device that wait for the samples they need."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from costprobe.adapters.sensors.child.metering import NEVER_NS, Metering
from costprobe.adapters.sensors.protocol.activity import ActivityLog
from costprobe.adapters.sensors.protocol.messages import Message, activity_message
from costprobe.core.clock import Clock
from costprobe.core.records import NS_PER_S

REQUESTS_MAX: Final = 64

# Reads the processes that were busy since a CLOCK_MONOTONIC ns; None if they are unknown.
BusyPids = Callable[[int], Collection[int] | None]


@dataclass(frozen=True, slots=True)
class _Request:
    """An `energy` or `activity` command."""

    message: Message
    end_ns: int
    give_up_ns: int


class PendingRequests:
    """The requests about one device.

    Args:
        metering: Answers requests for energy.
        activity: Answers requests for the conditions of a run.
        busy_pids: Reads which processes were busy, for the same requests.
        clock: CLOCK_MONOTONIC.
        every_ns: Time between the device's samples in ns.
    """

    def __init__(
        self,
        metering: Metering,
        activity: ActivityLog,
        busy_pids: BusyPids,
        clock: Clock,
        every_ns: int,
    ) -> None:
        self._metering = metering
        self._activity = activity
        self._busy_pids = busy_pids
        self._clock = clock
        self._wait_max_ns = max(2 * NS_PER_S, 2 * every_ns)
        self._requests: list[_Request] = []

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._requests)

    @property
    def give_up_ns(self) -> int:
        """When the next one is answered with what there is then, in CLOCK_MONOTONIC ns."""
        return min((request.give_up_ns for request in self._requests), default=NEVER_NS)

    def add(self, message: Message) -> None:
        """Add a command; one more than REQUESTS_MAX is dropped."""
        if len(self._requests) < REQUESTS_MAX:
            give_up_ns = self._clock.monotonic_ns() + self._wait_max_ns
            self._requests.append(_Request(message, int(message["end_ns"]), give_up_ns))

    def answers(self, *, opened: bool) -> list[Message]:
        """Remove the requests whose samples are in, or that have waited long enough.

        Args:
            opened: Whether the device is read, so that more samples follow.

        Returns:
            Their answers.
        """
        answers: list[Message] = []
        waiting: list[_Request] = []
        for request in self._requests:
            answer = self._answer(request, opened=opened)
            if answer is None:
                waiting.append(request)
            else:
                answers.append(answer)
        self._requests = waiting
        return answers

    def _answer(self, request: _Request, *, opened: bool) -> Message | None:
        is_energy = request.message["cmd"] == "energy"
        # Conditions come from samples alone; power is also polled between samples.
        seen_ns = self._metering.history.power_ns if is_energy else self._activity.seen_ns
        is_late = self._clock.monotonic_ns() >= request.give_up_ns
        last = not opened or is_late or seen_ns >= request.end_ns
        if is_energy:
            return self._metering.answer(request.message, last=last)
        return self._conditions(request.message) if last else None

    def _conditions(self, message: Message) -> Message:
        start_ns, end_ns = int(message["start_ns"]), int(message["end_ns"])
        busy_pids = self._busy_pids(start_ns)
        activity = self._activity.between(start_ns, end_ns, message["own_pids"], busy_pids)
        return activity_message(int(message["id"]), activity)
