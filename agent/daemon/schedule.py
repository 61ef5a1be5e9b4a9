"""Jobs aligned to the wall clock: none overlaps itself, a late one is skipped and counted."""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Lock

from apscheduler.events import EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED, JobExecutionEvent
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

logger = logging.getLogger(__name__)

MAX_WORKERS = 32
MAX_GRACE_S = 30.0
# A run may begin a little late, and the next one then follows in less than a period.
IN_TIME_SHARE = 0.9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class AlignedTrigger(BaseTrigger):  # type: ignore[misc] # apscheduler 3 carries no types
    """Fires at every multiple of a period since 1970 UTC, plus an offset.

    A period of "5m" so fires at :00, :05, … on every host of a fleet, whenever it was started.

    Args:
        every_s: The period in seconds.
        offset_s: How long after the multiple, in seconds.
        not_before: Earliest instant of a run on the grid.
    """

    def __init__(
        self, every_s: float, offset_s: float = 0.0, not_before: datetime = _EPOCH
    ) -> None:
        self._not_before = not_before
        # Whole microseconds, as datetime has them: with floats a run could follow itself at once.
        self._every = timedelta(seconds=every_s)
        self._offset = timedelta(seconds=offset_s)

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime:
        """The next aligned instant after the previous one, or after now.

        Of those that passed while the calendar was stepped, or the host was suspended, the newest
        is given and no other: a year of seconds would take minutes to count.
        """
        behind = now if previous is None else max(previous, now - self._every)
        since = max(behind, self._not_before) - _EPOCH - self._offset
        return _EPOCH + self._offset + (since // self._every + 1) * self._every

    def realign(self, now: datetime) -> None:
        """Forgets instants of a wall clock that has been stepped."""
        self._not_before = now


@dataclass(slots=True)
class JobRecord:
    """How a job's last run went: what `infercost status` shows of it; times are monotonic s."""

    runs: int = 0
    errors: int = 0
    late: int = 0
    last_duration_s: float | None = None
    last_error: str | None = None
    began_s: float | None = None
    ended_s: float | None = None
    every_s: float = field(default=0.0)

    def document(self) -> dict[str, int | float | str | None]:
        """These as JSON: plain values, which `asdict` would copy one by one."""
        return {name: getattr(self, name) for name in self.__slots__}


class Schedule:
    """The daemon's periodic jobs, each wrapped once: how long, did it work, what went wrong.

    Args:
        workers: Threads for jobs that may run at the same time; bounded by MAX_WORKERS.
    """

    def __init__(self, workers: int) -> None:
        self.records: dict[str, JobRecord] = {}
        self._lock = Lock()
        self._triggers: dict[str, AlignedTrigger] = {}
        self._started_s: float | None = None
        self._scheduler = BackgroundScheduler(
            timezone=UTC,
            executors={"default": ThreadPoolExecutor(max(2, min(workers, MAX_WORKERS)))},
            job_defaults={"coalesce": True, "max_instances": 1},
        )
        self._scheduler.add_listener(self._missed, EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES)

    @property
    def late_jobs(self) -> int:
        """Runs that were skipped because they were late or the one before had not ended."""
        with self._lock:
            return sum(record.late for record in self.records.values())

    def add(
        self,
        name: str,
        every_s: float,
        job: Callable[[], None],
        *,
        offset_s: float = 0.0,
        at_once: bool = False,
    ) -> None:
        """Adds a job before or after the start.

        Args:
            name: Unique name, as `infercost status` shows it.
            every_s: Period in seconds, aligned to the wall clock.
            job: What to do; an exception is logged and counted, and the next run happens.
            offset_s: Delay behind the aligned instant in seconds.
            at_once: Also run now; the aligned runs then begin half a period later at the
                earliest, so that the first is not late before it began.
        """
        record = self.records[name] = JobRecord(every_s=every_s)
        now = datetime.now(tz=UTC)
        not_before = now + timedelta(seconds=every_s / 2) if at_once else now
        trigger = self._triggers[name] = AlignedTrigger(every_s, offset_s, not_before)
        self._scheduler.add_job(
            self._wrapped(name, job, record),
            trigger,
            id=name,
            next_run_time=now if at_once else trigger.get_next_fire_time(None, now),
            misfire_grace_time=max(1, int(min(every_s / 2, MAX_GRACE_S))),
        )

    def start(self) -> None:
        """Begins to run jobs."""
        self._started_s = time.monotonic()
        self._scheduler.start()

    def is_silent(self, name: str, for_s: float) -> bool:
        """Whether a job has not ended for so long, in s, since it last did or since the start."""
        with self._lock:
            ended_s = self.records[name].ended_s
        since_s = self._started_s if ended_s is None else ended_s
        return since_s is not None and time.monotonic() - since_s > for_s

    def stop(self) -> None:
        """Begins no further job; the ones that run are told to end by their own parts."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def realign(self) -> None:
        """Computes every next run anew, after the wall clock was stepped."""
        now = datetime.now(tz=UTC)
        for name, trigger in self._triggers.items():
            trigger.realign(now)
            next_run = trigger.get_next_fire_time(None, now)
            self._scheduler.modify_job(name, next_run_time=next_run)

    def _wrapped(self, name: str, job: Callable[[], None], record: JobRecord) -> Callable[[], None]:
        def run() -> None:
            started_s = time.monotonic()
            with self._lock:
                record.began_s = started_s
            error: str | None = None
            try:
                job()
            except Exception as caught:
                logger.exception("job %s failed", name)
                error = f"{type(caught).__name__}: {caught}"
            with self._lock:
                record.runs += 1
                record.errors += error is not None
                record.last_error = error
                record.ended_s = time.monotonic()
                record.last_duration_s = record.ended_s - started_s

        return run

    def _is_in_time(self, record: JobRecord) -> bool:
        """True if no period has passed since its last run, but by a calendar that was stepped."""
        since_s = self._started_s if record.began_s is None else record.began_s
        return since_s is not None and time.monotonic() - since_s < IN_TIME_SHARE * record.every_s

    def _missed(self, event: JobExecutionEvent) -> None:
        name = str(event.job_id)
        with self._lock:
            record = self.records.get(name)
            if record is None or self._is_in_time(record):
                return
            record.late += 1
        logger.warning("job %s is late: this run is skipped", name)


def stagger_offset_s(host: str, stagger_s: float) -> float:
    """A host's own fixed delay within a stagger, so that hosts that share a feed spread out."""
    return stagger_s * (zlib.crc32(host.encode()) / 2**32)


class ClockStep:
    """Notices that the wall clock was stepped, by comparing it with the monotonic one.

    Args:
        time_ns: UTC in ns at the first look.
        monotonic_ns: CLOCK_MONOTONIC in ns at the first look.
        tolerance_s: Smaller steps are slewing and leap seconds.
    """

    def __init__(self, time_ns: int, monotonic_ns: int, tolerance_s: float = 2.0) -> None:
        self._offset_ns = time_ns - monotonic_ns
        self._tolerance_ns = int(tolerance_s * 1e9)

    def step_s(self, time_ns: int, monotonic_ns: int) -> float | None:
        """Seconds by which the clock was stepped since the last look; None if it was not."""
        offset_ns = time_ns - monotonic_ns
        step_ns = offset_ns - self._offset_ns
        if abs(step_ns) <= self._tolerance_ns:
            return None
        self._offset_ns = offset_ns
        return step_ns / 1e9
