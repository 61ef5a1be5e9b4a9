"""The alert that `costprobe alerts test` sends."""

from __future__ import annotations

from collections.abc import Mapping

from costprobe.core.incident import Alert, Symptom


def sample_alert(time_ns: int, tags: Mapping[str, str]) -> Alert:
    """Return an alert that identifies itself as a test.

    Args:
        time_ns: Current UTC in ns.
        tags: Host and static labels.
    """
    symptom = Symptom("test", "test", "this is how costprobe sends notifications", time_ns)
    return Alert(
        id=f"test-{time_ns}",
        name="test",
        state="firing",
        severity="info",
        labels=dict(tags),
        summary="This is a test; no action is needed.",
        symptoms=(symptom,),
        since_ns=time_ns,
        fired_ns=time_ns,
        is_test=True,
    )
