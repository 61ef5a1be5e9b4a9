"""Faults of sensors, classified by the reaction to them."""

from __future__ import annotations

import enum


class Reaction(enum.Enum):
    """Reaction of the sensor child to an error of a driver call."""

    ABSENT = "absent"
    """The device does not support this: do not read it again."""

    TRANSIENT = "transient"
    """Temporary: omit this value and read it again with the next sample."""

    REINIT = "reinit"
    """The library lost its state: initialize it again and discover the device again."""

    QUARANTINE = "quarantine"
    """The device is gone or unusable: do not access it for some time, then try again."""

    GONE = "gone"
    """The device was removed, as a MIG device that was destroyed: that is no fault."""

    RESTART = "restart"
    """Only a new process can load the library that matches the driver."""

    MODELLED = "modelled"
    """The host has no readable energy sensor: energy is modelled instead."""


class SensorFault(Exception):  # noqa: N818 - a fault of the device, as the protocol calls it
    """A sensor's call failed.

    Attributes:
        call: The driver's function, or the file, that failed.
        code: The vendor's name of the error.
        reaction: Reaction of the sensor child.
        detail: The vendor's message, and a fix for the operator.
    """

    def __init__(self, call: str, code: str, reaction: Reaction, detail: str = "") -> None:
        super().__init__(f"{call}: {code}" + (f": {detail}" if detail else ""))
        self.call = call
        self.code = code
        self.reaction = reaction
        self.detail = detail
