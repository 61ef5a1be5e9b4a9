"""The text of an alert in mail and chat: two lines, the series, and a link."""

from costprobe.delivery.contract import text_of
from fakes.incidents import incident, symptom

TAIL = "\n\ndevice=gpu0, host=node7\nsince 2026-05-28 20:26:40 UTC · 3f2a-1"
HEAD = "gpu0 is slower because it throttles\n"
WHY = "cause: thermal throttling 90 %. To do: check the fan\n"
LINK = "http://gpu-01:9470/?at=2026-05-28T20:26:40Z"


def test_message_begins_with_two_lines_and_lists_several_series():
    series = "- +7.2 % since 14:05: SM clock 1980 → 1815 MHz\n- +5 % energy\n"
    assert text_of(incident()) == HEAD + WHY + series + LINK + TAIL


def test_single_series_is_not_repeated():
    alone = incident(symptoms=(symptom(text="gpu0 is slower because it throttles"),), link="")
    assert text_of(alone) == HEAD + WHY.rstrip() + TAIL


def test_without_an_explanation_the_cause_is_named():
    plain = incident(detail="", link="", symptoms=())
    assert text_of(plain) == HEAD + "Cause: thermal throttling" + TAIL
    fault = symptom(series="sink_behind eu", text="sink eu accepts no points")
    named = incident(summary=fault.text, detail="", cause="sink_behind", link="", symptoms=(fault,))
    assert text_of(named) == fault.text + TAIL
