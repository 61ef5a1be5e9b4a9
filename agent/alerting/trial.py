"""The alert that `infercost alerts test` sends."""

from __future__ import annotations

from collections.abc import Mapping

from agent.alert import Alert, Symptom


def trial_alert(time_ns: int, tags: Mapping[str, str]) -> Alert:
    """An alert that says of itself that it is a test.

    Args:
        time_ns: UTC in ns of now.
        tags: Host and static labels.
    """
    symptom = Symptom("test", "test", "infercost can tell you of incidents this way", time_ns)
    return Alert(
        id=f"test-{time_ns}",
        name="test",
        state="firing",
        severity="info",
        labels=dict(tags),
        summary="This is a test: nothing is wrong.",
        symptoms=(symptom,),
        since_ns=time_ns,
        fired_ns=time_ns,
        is_test=True,
    )
