"""The probes of a configuration: one job for each target, with their place in the schedule."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Event as Flag
from typing import Any

from costprobe.adapters.probing.settings import AnyProbeConfig, ProbingConfig
from costprobe.adapters.sensors.supervisor.supervisor import SensorSupervisor
from costprobe.app.accounting.ledger import Ledger
from costprobe.app.accounting.probe_runs import ProbeRuns
from costprobe.app.accounting.stored_history import StoredHistory
from costprobe.app.measuring.device_queue import DeviceQueue
from costprobe.app.measuring.listeners import Listeners
from costprobe.app.measuring.measuring import Measurer
from costprobe.app.measuring.probe_accounts import ProbeAccounts
from costprobe.app.measuring.probe_jobs import FULL_DUTY, JobParts, ProbeJob
from costprobe.app.measuring.targets import targets
from costprobe.app.schedule import Schedule, stagger_offset_s
from costprobe.core.clock import Clock
from costprobe.core.records import Device


class HostProbes:
    """The probe jobs of this host.

    Args:
        probing: The section [probing].
        probes: The configured probes.
        devices: The discovered devices.
        sensor: Measures the energy of the runs.
        accounts: Prices and stores the results.
        ledger: Keeps the last results for a restart or a reload.
        clock: The host's clocks.
        listeners: Callbacks.
        runs: Receives when the probes used the devices.
        lock_folder: Folder of the devices' lock files.
        stop: Ends running probes.
    """

    def __init__(  # noqa: PLR0913 - the parts that it combines
        self,
        probing: ProbingConfig,
        probes: Sequence[AnyProbeConfig],
        devices: Sequence[Device],
        sensor: SensorSupervisor,
        accounts: ProbeAccounts,
        ledger: Ledger,
        *,
        clock: Clock,
        listeners: Listeners,
        runs: ProbeRuns,
        lock_folder: Path,
        stop: Flag,
    ) -> None:
        self._probing = probing
        self._measurer = Measurer(sensor, ledger, lock_folder, stop, clock.monotonic_ns, runs)
        queues = {
            device.name: DeviceQueue(device.name, probing.duty, ledger, clock) for device in devices
        }
        parts = JobParts(self._measurer, accounts, ledger, clock, listeners)
        self.jobs = [
            ProbeJob(probe, target, [queues[device.name] for device in target.devices], parts)
            for probe in probes
            for target in targets(probe, devices)
        ]

    def schedule_on(self, schedule: Schedule, host: str, history: StoredHistory) -> None:
        """Add the jobs to a schedule; one that did not run for a period also runs now.

        Args:
            schedule: The schedule.
            host: Name of this host, which staggers the runs of a fleet.
            history: The runs in the store.

        Raises:
            StoreError: The store cannot be read.
        """
        for job in self.jobs:
            schedule.add(
                job.name,
                job.probe.every_s,
                job,
                offset_s=stagger_offset_s(host, job.probe.stagger_s),
                at_once=self._probing.duty >= FULL_DUTY
                or not history.ran_lately(job.target.name, job.probe.name, job.probe.every_s),
            )

    def status(self, schedule: Schedule) -> list[dict[str, Any]]:
        """Return the status of each job, with its next run in UTC ns; None if it does not run."""
        return [{**job.status(), "next_ns": _next_run_ns(job, schedule)} for job in self.jobs]

    def close(self) -> None:
        """End the running probes."""
        self._measurer.close()


def _next_run_ns(job: ProbeJob, schedule: Schedule) -> int | None:
    """Return when a probe runs next within its duty budget; None if it does not."""
    wait_s = job.wait_s()
    return None if wait_s is None else schedule.next_run_ns(job.name, wait_s)
