"""For any input each notifier receives each incident's notices in order, also over restarts."""

import json

from costprobe.core.records import NS_PER_S
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine import T0, Player, engine_of, fault, hook, rule, silence

RULES = (
    rule("lost", faults=["device_lost"], **{"for": "20s"}),
    rule("behind", faults=["sink_behind"], cool_down="40s", group_by=["host"]),
)
NOTIFIERS = (
    hook(),
    hook("pager", min_severity="critical", repeat="50s"),
    hook("quiet", send_resolved=False),
)
FAULTS = st.lists(
    st.sampled_from(
        [
            fault(),
            fault(subject="gpu1", severity="warning"),
            fault("sink_behind", "a", "warning", sink="a"),
            fault("sink_behind", "b", "critical", sink="b"),
        ]
    ),
    max_size=3,
    unique_by=lambda found: (found.name, found.subject),
)
STEPS = st.lists(
    st.tuples(st.integers(1, 2000), FAULTS, st.sampled_from(["", "", "silence", "restart"])),
    max_size=40,
)


def play(steps, *, with_restarts):
    player = Player(engine_of(*RULES, notifiers=NOTIFIERS))
    seconds = 0
    for step_s, faults, action in steps:
        seconds += step_s
        if action == "silence":
            now_ns = T0 + seconds * NS_PER_S
            player.engine.silencing.add(
                silence(id=str(seconds), starts_ns=now_ns, ends_ns=now_ns + 300 * NS_PER_S)
            )
        if action == "restart" and with_restarts:
            player.restart(*RULES, notifiers=NOTIFIERS)
        for alert in player.tick(seconds, *faults):
            assert alert.state in {"pending", "firing"}
    return player


@settings(max_examples=60)
@given(STEPS)
def test_notices_are_ordered_and_restarts_do_not_change_them(steps):
    restarted, straight = (play(steps, with_restarts=is_on) for is_on in (True, False))
    assert restarted.notified == straight.notified
    assert restarted.rows == straight.rows
    assert json.dumps(restarted.engine.document()) == json.dumps(straight.engine.document())
    notified = {}
    for notifier, alert in restarted.notified:
        notified.setdefault((notifier, alert.id), []).append(alert.state)
    for states in notified.values():
        assert states[0] == "firing"
        assert "resolved" not in states[:-1]
