import signal
import threading

import pytest

from agent.telemetry.alarm import Alarm


@pytest.fixture
def rings():
    """How often an alarm of this process rang."""
    before = signal.getsignal(signal.SIGALRM)
    yield []
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_an_alarm_rings_once_when_nobody_puts_it_off(rings, wait_until):
    alarm = Alarm(0.05, lambda: rings.append(threading.get_ident()))
    alarm.put_off()
    wait_until(lambda: rings)
    # Rung in the main thread, though another one put it off; and not again by itself.
    threading.Thread(target=alarm.put_off).start()
    wait_until(lambda: len(rings) == 2)
    assert set(rings) == {threading.main_thread().ident}
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_an_alarm_that_is_put_off_waits_anew(rings):
    alarm = Alarm(100.0, lambda: rings.append(None))
    alarm.put_off()
    signal.setitimer(signal.ITIMER_REAL, 50.0)
    alarm.put_off()
    left_s, _ = signal.getitimer(signal.ITIMER_REAL)
    assert left_s > 50.0
    assert rings == []
