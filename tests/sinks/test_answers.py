"""Each answer of a database asks one thing of us."""

import pytest

from agent.retry_after import retry_after_s
from agent.sinks.answers import judge, reason_of
from agent.sinks.errors import Misconfigured, Rejected, RetryLater


@pytest.mark.parametrize(("status", "body"), [(200, b""), (204, b""), (202, b"\n")])
def test_taken(status, body):
    assert judge(status, {}, body) is None


def test_a_page_that_greets_has_taken_nothing():
    with pytest.raises(Misconfigured, match="check url"):
        judge(200, {}, b"<html>Please log in</html>")


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 507])
def test_busy_is_retried(status):
    with pytest.raises(RetryLater) as caught:
        judge(status, {"retry-After": "7"}, b"later")
    assert caught.value.after_s == 7


@pytest.mark.parametrize(("status", "too_large"), [(400, False), (422, False), (413, True)])
def test_refused_lines_are_split(status, too_large):
    with pytest.raises(Rejected, match="bad") as caught:
        judge(status, {}, b'{"code":"invalid","message":"bad"}')
    assert caught.value.too_large is too_large
    assert caught.value.doubtful is False


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"Client sent an HTTP request to an HTTPS server.\n",
        b"<html>400 The plain HTTP request was sent to HTTPS port</html>",
        b"[" * 100_000,
    ],
)
def test_a_refusal_that_is_not_in_a_databases_form_is_doubtful(body):
    with pytest.raises(Rejected) as caught:
        judge(400, {}, body)
    assert caught.value.doubtful is True


@pytest.mark.parametrize("status", [301, 307, 401, 403, 404, 405, 411])
def test_the_rest_is_the_operators(status):
    with pytest.raises(Misconfigured) as caught:
        judge(status, {}, b"")
    assert caught.value.unauthorized is (status in {401, 403})


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"error":"partial write"}', "partial write"),
        (b'{"message":"no\\n such"}', "no such"),
        (b"plain", "plain"),
        (b"\xff\xfe", "��"),
        (b"[1]", "[1]"),
        (b"", "no reason given"),
    ],
)
def test_the_servers_own_words(body, reason):
    assert reason_of(body) == reason


def test_a_long_answer_is_shortened():
    assert len(reason_of(b"x" * 10**6)) <= 400


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("120", 120),
        ("0", 0),
        ("-1", None),
        ("nan", None),
        ("soon", None),
        ("1e9", 3600),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 90),
        ("Thu, 01 Jan 1970 00:00:01 GMT", None),
    ],
)
def test_retry_after(value, seconds):
    assert retry_after_s(value, now_s=10.0) == seconds
