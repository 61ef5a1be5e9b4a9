"""What is kept follows a board to its name of today, and waits for an absent one."""

from costprobe.core.records import Device
from costprobe.devices.boards import board_events, found_boards, moved_states, moves, renaming
from record.record_files import check


def gpus(*uuids):
    boards = [Device(f"gpu{i}", "gpu", uuid, "H100") for i, uuid in enumerate(uuids)]
    return [*boards, Device("gpu0.mig0", "mig", "MIG-1", "1g", parent="gpu0"), CPU]


CPU = Device("cpu", "cpu", "machine", "EPYC")


def test_boards_that_move_down_keep_their_identity_and_one_that_is_absent_is_remembered():
    before = found_boards({}, gpus("A", "B", "C"), 1)
    after = found_boards(before, gpus("B", "C"), 2)
    assert [(b.uuid, b.name, b.absent_ns) for b in after.values()] == [
        ("B", "gpu0", None),
        ("C", "gpu1", None),
        ("A", "A", 2),
    ]
    assert moves(before, after) == {"gpu0": "A", "gpu1": "gpu0", "gpu2": "gpu1"}
    events = board_events(before, after, 2)
    assert [(event.device, event.before, event.after) for event in events] == [
        ("gpu0", "board A", "board B"),
        ("gpu1", "board B", "board C"),
    ]
    back = found_boards(after, gpus("A", "B", "C"), 3)
    assert moves(after, back) == {"A": "gpu0", "gpu0": "gpu1", "gpu1": "gpu2"}
    assert {board.absent_ns for board in back.values()} == {None}


def test_absent_board_keeps_its_name_while_no_other_has_it():
    before = found_boards({}, gpus("A", "B"), 1)
    after = found_boards(before, gpus("A"), 2)
    assert after["B"].name == "gpu1"
    assert moves(before, after) == {}
    assert found_boards(after, gpus("A"), 9) == after


def test_documents_follow_their_boards():
    states = {
        "terms gpu0": {"rate": 3},
        "terms gpu1": {"rate": 2},
        "job gpu0+gpu1 server": {"last": {"device": "gpu0+gpu1"}},
        "detector gpu1.mig2 encoder cost": {
            "key": ["gpu1.mig2", "encoder", "cost"],
            "state": "gpu1",
        },
        "probe gpu10 encoder": {},
        "status": {"device": "gpu1"},
        "alerting": {"incidents": {"hot\ndevice=gpu1": {"summary": "gpu1 is hot, not gpu10"}}},
    }
    moved = moved_states(
        states,
        renaming({"gpu0": "GPU-a", "gpu1": "gpu0"}),
        ("terms", "job", "detector", "probe"),
        ("alerting",),
    )
    check("moved_states.json", moved)
