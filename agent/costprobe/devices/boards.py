"""The boards that a host has had, by UUID: which are absent, which moved, and what follows them.

A board is its UUID; `gpu0` is the name under which it stands today. After a reboot without board
0 the others move down. What the store keeps under a name (rows, detectors, incidents, terms) then
moves with its board; what belongs to a board whose name another one has taken is kept under its
UUID until it is back. MIG devices change their UUIDs with each reconfiguration: only whole
boards count, and their MIG devices follow them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from costprobe.core.records import Device, Event

# Name of the stored document.
BOARDS_STATE: Final = "boards"
# Absent boards; the longest absent is forgotten first.
ABSENT_MAX: Final = 64
# Between whole names: gpu1 is in "gpu0+gpu1" and "gpu1.mig0", and not in "gpu10".
_EDGE: Final = r"[\w-]"


@dataclass(frozen=True, slots=True)
class Board:
    """A board of this host.

    Attributes:
        uuid: Its permanent identity.
        name: Name under which it stands; its UUID if it is absent and another board has its name.
        model: Product name by the vendor.
        absent_ns: UTC in ns since which it is absent; None for a present one.
        left: Whether it was reported as removed for good; its rows remain its own.
    """

    uuid: str
    name: str
    model: str
    absent_ns: int | None = None
    left: bool = False

    @property
    def absence(self) -> str:
        """Where it was, as words; of an absent board."""
        was = "" if self.name == self.uuid else f"{self.name}, "
        return f"{was}{self.uuid} ({self.model}) is absent"


def boards_of(document: Iterable[Mapping[str, Any]]) -> dict[str, Board]:
    """Return the boards of a stored document, by UUID."""
    return {str(entry["uuid"]): Board(**entry) for entry in document}


def boards_document(boards: Mapping[str, Board]) -> list[dict[str, Any]]:
    """Return boards as JSON."""
    return [asdict(board) for board in boards.values()]


def renaming(moved: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that replaces names in a text.

    Args:
        moved: New names by old ones.
    """
    names = "|".join(map(re.escape, sorted(moved, key=len, reverse=True)))
    pattern = re.compile(rf"(?<!{_EDGE})(?:{names})(?!{_EDGE})")
    return lambda text: pattern.sub(lambda match: moved[match[0]], text)


def found_boards(
    known: Mapping[str, Board], devices: Sequence[Device], time_ns: int
) -> dict[str, Board]:
    """Return the boards that are present, then those that are known and absent.

    Args:
        known: The boards until now, by UUID.
        devices: The devices that were found.
        time_ns: UTC in ns.
    """
    found: dict[str, Board] = {}
    for device in devices:
        if device.is_board and device.uuid:
            found.setdefault(device.uuid, Board(device.uuid, device.name, device.model))
    taken = {board.name for board in found.values()}
    absent = [
        replace(
            board,
            name=board.uuid if board.name in taken else board.name,
            absent_ns=time_ns if board.absent_ns is None else board.absent_ns,
        )
        for uuid, board in known.items()
        if uuid not in found
    ]
    absent.sort(key=lambda board: board.absent_ns or 0)
    return found | {board.uuid: board for board in absent[-ABSENT_MAX:]}


def moves(before: Mapping[str, Board], after: Mapping[str, Board]) -> dict[str, str]:
    """Return the names whose boards have another name now, with the new ones."""
    return {
        board.name: after[uuid].name
        for uuid, board in before.items()
        if uuid in after and after[uuid].name != board.name
    }


def board_events(
    before: Mapping[str, Board], after: Mapping[str, Board], time_ns: int
) -> list[Event]:
    """Return an event for each name that stands for another board.

    Args:
        before: The boards until now, by UUID.
        after: The boards now.
        time_ns: UTC in ns.
    """
    was_there = {board.name: board for board in before.values()}
    events = []
    for board in after.values():
        previous = was_there.get(board.name)
        if board.absent_ns is not None or previous is None or previous.uuid == board.uuid:
            continue
        came = before.get(board.uuid)
        moved = f"it was {came.name} before; " if came is not None else ""
        events.append(
            Event(
                kind="software",
                severity="warning",
                title=f"{board.name} is now another board: {board.model}, {board.uuid}",
                time_ns=time_ns,
                detail=f"{moved}history, baselines and incidents follow the boards; those of"
                f" {previous.uuid} are kept under {after[previous.uuid].name}",
                device=board.name,
                before=f"board {previous.uuid}",
                after=f"board {board.uuid}",
                cause="board",
            )
        )
    return events


def moved_states(
    states: Mapping[str, Any],
    rename: Callable[[str], str],
    by_device: Sequence[str],
    of_host: Sequence[str],
) -> dict[str, Any]:
    """Return the documents that change as names move, by name; None for one that is gone.

    Args:
        states: The stored documents, by name.
        rename: Returns the present name of a device.
        by_device: First words of the documents whose second is a device.
        of_host: Names of documents that mention devices.
    """

    def renamed(value: Any) -> Any:  # noqa: ANN401 - any JSON value
        if isinstance(value, str):
            return rename(value)
        if isinstance(value, list):
            return [renamed(item) for item in value]
        if isinstance(value, dict):
            return {
                renamed(key): item if key == "state" else renamed(item)
                for key, item in value.items()
            }
        return value

    changed: dict[str, Any] = {}
    arrived: dict[str, Any] = {}
    for name, document in states.items():
        word, _, rest = name.partition(" ")
        if name in of_host:
            arrived[name] = renamed(document)
        elif word in by_device and document is not None:
            device, _, others = rest.partition(" ")
            if rename(device) != device:
                changed[name] = None
                arrived[" ".join(filter(None, (word, rename(device), others)))] = renamed(document)
    return changed | arrived
