"""What can go wrong with a sensor, told by what to do about it."""

from __future__ import annotations

import enum


class Reaction(enum.Enum):
    """What the sensor child does about an error of a driver call."""

    ABSENT = "absent"
    """The device does not have this: remember, and ask no more."""

    TRANSIENT = "transient"
    """Not now: leave this value out and ask again with the next sample."""

    REINIT = "reinit"
    """The library lost its state: initialize it again and find the device anew."""

    QUARANTINE = "quarantine"
    """The device is gone or unusable: leave it alone for a while, then try again."""

    RESTART = "restart"
    """Only a new process can load the library that the driver now wants."""

    MODELLED = "modelled"
    """The host has no energy sensor that we may read: energy is modelled instead."""


class SensorFault(Exception):  # noqa: N818 - a fault of the device, as the wire calls it
    """A sensor's call failed, with what that asks of us.

    Attributes:
        call: The driver's function, or the file, that failed.
        code: The vendor's name of the error.
        reaction: What to do about it.
        detail: The vendor's words, and what an operator can do.
    """

    def __init__(self, call: str, code: str, reaction: Reaction, detail: str = "") -> None:
        super().__init__(f"{call}: {code}" + (f": {detail}" if detail else ""))
        self.call = call
        self.code = code
        self.reaction = reaction
        self.detail = detail
