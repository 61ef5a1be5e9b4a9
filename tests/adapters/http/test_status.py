"""The table of status codes, the server's message, Retry-After, back-off and rate limit."""

import random

import pytest
from costprobe.adapters.host.redaction import REDACTOR
from costprobe.adapters.http.access import Destination, is_loopback
from costprobe.adapters.http.errors import (
    DeliveryError,
    HttpResponse,
    Misconfigured,
    Rejected,
    RetryBackoff,
    TokenBucket,
    raise_for_status,
    retry_after_s,
    server_message,
)
from record.record_files import check_outcomes

CANARY = "c4nary-5ecret"
NOW_S = 1_780_000_000.0


def outcome(status, body=b"", *, url="https://h/", **headers):
    response = HttpResponse(status, {k.replace("_", "-"): v for k, v in headers.items()}, body)
    try:
        is_tls = Destination.parse(url).is_tls
        raise_for_status(response, now_s=NOW_S, is_tls=is_tls, name="https://h")
    except DeliveryError as error:
        return error
    return None


def test_each_status_has_one_required_action():
    def action(status):
        error = outcome(int(status), b"so it is")
        flags = [name for name in ("unauthorized", "too_large") if getattr(error, name, False)]
        return [type(error).__name__, *flags, str(error)] if error else None

    check_outcomes("http_statuses.json", action)
    assert (outcome(503, retry_after="17").after_s, outcome(503).after_s) == (17, None)


def test_rejection_is_doubtful_unless_it_is_a_json_object():
    assert not outcome(400, b'{"error": "partial write"}').doubtful
    for body in (b"", b"no", b"<html>", b"[1]", b"[" * 100_000):
        assert outcome(400, body).doubtful, body[:20]


def test_plain_http_to_an_https_server_is_misconfigured():
    body = b"Client sent an HTTP request to an HTTPS server."
    assert isinstance(outcome(400, body, url="http://h/"), Misconfigured)
    assert isinstance(outcome(400, body, url="https://h/"), Rejected)


def test_server_message_is_short_printable_and_without_secrets():
    check_outcomes("server_messages.json", lambda text: server_message(text.encode()))
    assert len(server_message(b"x" * 10**6)) <= 400
    REDACTOR.learn(CANARY)
    for body in (CANARY.upper(), " " * 1590 + CANARY, f'{{"message": "{CANARY}"}}'):
        assert CANARY not in server_message(body.encode()).casefold()
    REDACTOR.forget()
    Destination.parse(f"http://h/{CANARY}?k=an%20other", "file url")
    response = HttpResponse(404, {}, f"no {CANARY}".encode())
    with pytest.raises(Misconfigured) as caught:
        raise_for_status(response, now_s=NOW_S)
    assert CANARY not in caught.value.reason
    assert caught.value.reason.startswith("HTTP 404")


def test_retry_after_is_seconds_or_a_date():
    check_outcomes("retry_after_texts.json", lambda text: retry_after_s(text, NOW_S))
    assert (retry_after_s(None, NOW_S), retry_after_s("9" * 6000, NOW_S)) == (None, 3600)


def test_invalid_urls_are_rejected_without_being_shown():
    for url in (
        f"http://me:{CANARY}@h/",
        f"ftp://h/{CANARY}",
        f"http://h:{CANARY}/",
        f"http://[{CANARY}/",
        f"http://{CANARY * 9}/",
        f"http://h/a b/{CANARY}",
        f"http://h/{CANARY}\u00fc",
        "http://h:0/",
        f"{CANARY}\nX: 1",
        "",
    ):
        for place in (None, "file url"):
            with pytest.raises(Misconfigured) as caught:
                Destination.parse(url, place)
            assert CANARY not in repr(caught.value), url
            assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert CANARY not in repr(Destination.parse(f"http://h/{CANARY}", "file url"))


def test_loopback_urls():
    assert all(map(is_loopback, ("http://localhost:1/x", "https://127.0.0.2", "http://[::1]:80")))
    assert not any(map(is_loopback, ("http://h", "http://10.0.0.1", "nothing")))


def test_backoff_doubles_with_jitter_up_to_its_maximum_and_waits_as_long_as_the_server_asks():
    backoff = RetryBackoff(1.0, 60.0, random.Random(1))
    for n in range(50):
        assert 0.1 <= backoff.failed() <= min(60.0, 2.0**n)
    waits = [backoff.failed() for _ in range(200)]
    assert min(waits) < 10
    assert max(waits) > 50
    backoff.succeeded()
    assert backoff.failures == 0
    assert backoff.failed() <= 1.0
    backoff.succeeded()
    assert 7.0 < backoff.failed(7.0) <= 8.0
    # An hour at most; one that may be asked again at once waits as usual.
    assert 3600.0 < backoff.failed(1e9) <= 3601.0
    assert max(backoff.failed(0.0) for _ in range(70)) > 10


def test_token_bucket_allows_a_burst_then_a_rate_and_may_be_overdrawn():
    bucket = TokenBucket(per_s=2.0, capacity=4.0, now_s=0.0)
    for _ in range(4):
        assert bucket.wait_s(0.0, tokens=1.0) == 0
        bucket.take()
    assert bucket.wait_s(0.0, tokens=1.0) == 0.5
    assert bucket.wait_s(0.0) == 0
    bucket.take(10.0)
    assert bucket.wait_s(1.0) == 4.0
    assert bucket.wait_s(1000.0, tokens=4.0) == 0
    assert bucket.wait_s(1000.0, tokens=5.0) == 0.5
