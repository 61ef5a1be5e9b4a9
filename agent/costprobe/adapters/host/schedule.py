"""Periodic jobs aligned to the wall clock; a job never overlaps itself, a late run is skipped."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Lock

from apscheduler.events import EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED, JobExecutionEvent
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from costprobe.adapters.host.redaction import outside_text
from costprobe.core.clock import Clock, JobError
from costprobe.core.records import NS_PER_S

logger = logging.getLogger(__name__)

MAX_WORKERS = 32
MAX_GRACE_S = 30.0
# A run may start slightly late, and the next one then follows in less than a period.
IN_TIME_SHARE = 0.9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class AlignedTrigger(BaseTrigger):  # type: ignore[misc] # apscheduler 3 carries no types
    """Fire at every multiple of a period since 1970 UTC, plus an offset.

    A period of "5m" fires at :00, :05, … on every host of a fleet, whenever it was started.

    Args:
        every_s: The period in seconds.
        offset_s: Delay after the multiple, in seconds.
        not_before: Earliest instant of an aligned run.
    """

    def __init__(
        self, every_s: float, offset_s: float = 0.0, not_before: datetime = _EPOCH
    ) -> None:
        self._not_before = not_before
        # Whole microseconds as in datetime: with floats a run could be repeated immediately.
        self._every = timedelta(seconds=every_s)
        self._offset = timedelta(seconds=offset_s)

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime:
        """Return the next aligned instant after the previous one, or after now.

        Of the instants that passed during a step of the wall clock or a suspension only the newest
        is returned: iterating over a year of seconds would take minutes.
        """
        behind = now if previous is None else max(previous, now - self._every)
        since = max(behind, self._not_before) - _EPOCH - self._offset
        return _EPOCH + self._offset + (since // self._every + 1) * self._every

    def realign(self, now: datetime) -> None:
        """Discard `not_before`, which was computed before a step of the wall clock."""
        self._not_before = now


@dataclass(slots=True)
class JobRecord:
    """A job's runs, for `costprobe status`; times are CLOCK_MONOTONIC s."""

    runs: int = 0
    errors: int = 0
    late: int = 0
    last_duration_s: float | None = None
    last_error: str | None = None
    began_s: float | None = None
    ended_s: float | None = None
    every_s: float = 0.0

    def document(self) -> dict[str, int | float | str | None]:
        """Return the record as JSON; faster than `asdict`."""
        return {name: getattr(self, name) for name in self.__slots__}


class Schedule:
    """The daemon's periodic jobs; duration and errors of each run are recorded in one place.

    Args:
        workers: Threads for jobs that may run at the same time; bounded by MAX_WORKERS.
        clock: The host's clocks.
        is_stepped: Whether `realign` is about to be called, after a step of the wall clock or a gap;
            must take no lock.
    """

    def __init__(
        self, workers: int, clock: Clock, is_stepped: Callable[[], bool] = lambda: False
    ) -> None:
        self._is_stepped = is_stepped
        self.records: dict[str, JobRecord] = {}
        self._clock = clock
        self._lock = Lock()
        self._triggers: dict[str, AlignedTrigger] = {}
        self._started_s: float | None = None
        self._realigned_s = -math.inf
        self._scheduler = BackgroundScheduler(
            timezone=UTC,
            executors={"default": ThreadPoolExecutor(max(2, min(workers, MAX_WORKERS)))},
            job_defaults={"coalesce": True, "max_instances": 1},
        )
        self._scheduler.add_listener(self._missed, EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES)

    @property
    def late_jobs(self) -> int:
        """Number of runs that were skipped because they were late or the previous run had not ended."""
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
        """Add a job, before or after the start.

        Args:
            name: Unique name, shown by `costprobe status`.
            every_s: Period in seconds, aligned to the wall clock.
            job: The work; an exception is logged and counted, and the next run takes place.
            offset_s: Delay after the aligned instant in seconds.
            at_once: Also run now; the aligned runs then start half a period later at the
                earliest, so that the first is not skipped as late.
        """
        record = JobRecord(every_s=every_s)
        # Replaced, not changed: other threads iterate over it.
        self.records = {**self.records, name: record}
        now = self._now()
        not_before = now + timedelta(seconds=every_s / 2) if at_once else now
        trigger = self._triggers[name] = AlignedTrigger(every_s, offset_s, not_before)
        self._scheduler.add_job(
            self._wrapped(name, job, record),
            trigger,
            id=name,
            next_run_time=now if at_once else trigger.get_next_fire_time(None, now),
            misfire_grace_time=max(1, int(min(every_s / 2, MAX_GRACE_S))),
        )

    def remove(self, name: str) -> None:
        """Remove a job; a run in progress ends as usual."""
        self._scheduler.remove_job(name)
        self._triggers.pop(name)
        self.records = {key: record for key, record in self.records.items() if key != name}

    def start(self) -> None:
        """Start running jobs."""
        self._started_s = self._monotonic_s()
        self._scheduler.start()

    def next_run_ns(self, name: str, wait_s: float = 0.0) -> int | None:
        """Return the UTC ns of a job's next run that is at least wait_s from now; None if none is due."""
        job = self._scheduler.get_job(name)
        planned: datetime | None = getattr(job, "next_run_time", None)
        if planned is None:
            return None
        earliest = self._now() + timedelta(seconds=wait_s)
        if planned < earliest and wait_s:
            planned = self._triggers[name].get_next_fire_time(None, earliest)
        return (planned - _EPOCH) // timedelta(microseconds=1) * 1000

    def is_silent(self, name: str, for_s: float) -> bool:
        """Return whether no run of a job has ended in the last for_s seconds."""
        with self._lock:
            ended_s = self.records[name].ended_s
        since_s = self._started_s if ended_s is None else ended_s
        if since_s is None:
            return False
        return self._monotonic_s() - max(since_s, self._realigned_s) > for_s

    def stop(self) -> None:
        """Start no further run; running jobs are ended by their owners."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def realign(self) -> None:
        """Compute every next run again, after a step of the wall clock or a gap."""
        self._realigned_s = self._monotonic_s()
        now = self._now()
        for name, trigger in list(self._triggers.items()):
            trigger.realign(now)
            next_run = trigger.get_next_fire_time(None, now)
            self._scheduler.modify_job(name, next_run_time=next_run)

    def _now(self) -> datetime:
        # Microseconds are counted in integers: a float of seconds is not exact.
        return _EPOCH + timedelta(microseconds=self._clock.time_ns() // 1000)

    def _monotonic_s(self) -> float:
        return self._clock.monotonic_ns() / NS_PER_S

    def _wrapped(self, name: str, job: Callable[[], None], record: JobRecord) -> Callable[[], None]:
        def run() -> None:
            started_s = self._monotonic_s()
            with self._lock:
                record.began_s = started_s
            error: str | None = None
            try:
                job()
            except JobError as caught:
                error = str(caught)
                logger.warning("job %s failed: %s", name, outside_text(error))
            except Exception as caught:
                logger.exception("job %s failed", name)
                error = f"{type(caught).__name__}: {caught}"
            with self._lock:
                record.runs += 1
                record.errors += error is not None
                record.last_error = error
                record.ended_s = self._monotonic_s()
                record.last_duration_s = record.ended_s - started_s

        return run

    def _is_in_time(self, record: JobRecord) -> bool:
        """Return whether less than a period has passed since the last run, by CLOCK_MONOTONIC."""
        since_s = self._started_s if record.began_s is None else record.began_s
        if since_s is None:
            return False
        since_s = max(since_s, self._realigned_s)
        return self._monotonic_s() - since_s < IN_TIME_SHARE * record.every_s

    def _missed(self, event: JobExecutionEvent) -> None:
        name = str(event.job_id)
        with self._lock:
            record = self.records.get(name)
            if record is None or self._is_in_time(record) or self._is_stepped():
                return
            record.late += 1
        logger.warning("job %s is late: this run is skipped", name)
