"""The dashboard rejects foreign Host headers and writes, and sends restrictive security headers."""

import pytest

PAGES = ["/", "/api/now", "/static/js/main.js", "/nothing", "/static/../app.py"]


@pytest.mark.parametrize("path", PAGES)
def test_every_response_has_the_security_headers(kept_page, path):
    _, headers, _ = kept_page.request(path)
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert "Access-Control-Allow-Origin" not in headers
    assert "Server" not in headers


def test_page_loads_nothing_from_other_hosts(kept_page):
    for path in ("/", "/static/page.css", "/static/js/main.js", "/static/js/chart.js"):
        status, _, body = kept_page.request(path)
        assert status == 200
        text = body.decode()
        assert "//cdn" not in text
        assert "https://" not in text
    html = kept_page.request("/")[2].decode()
    assert not [word for word in ("<style", " style=", "onclick") if word in html]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/api/now"])
def test_methods_other_than_get_and_head_are_rejected(kept_page, method, path):
    status, headers, _ = kept_page.request(path, method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    ("host", "is_answered"),
    [
        ("localhost", True),
        ("LOCALHOST:9470", True),
        ("127.0.0.1:9470", True),
        ("[::1]:9470", True),
        ("10.1.2.3", True),
        ("rebound.example", False),
        ("localhost.rebound.example:9470", False),
        ("127.0.0.1.rebound.example", False),
        ("localhost:9470:1", False),
        ("", False),
    ],
)
def test_foreign_host_header_is_rejected(kept_page, host, is_answered):
    status, _, body = kept_page.request("/api/now", headers={"Host": host})
    assert (status == 200) is is_answered
    if not is_answered:
        assert b"--allow-host" in body


def test_allowed_host_is_accepted(page_on, kept_store, clock):
    page = page_on(kept_store.path, clock, allowed_hosts=["GPU-01.example."])
    assert page.request("/api/now", headers={"Host": "gpu-01.example:9470"})[0] == 200


def test_overlong_url_is_rejected(kept_page):
    assert kept_page.request("/api/now?" + "x" * 5000)[0] == 414


@pytest.mark.parametrize(
    "path", ["/static/../../app.py", "/static/%2e%2e/app.py", "/../etc/passwd", "/static/js/"]
)
def test_only_files_of_the_page_are_served(kept_page, path):
    status, _, body = kept_page.request(path)
    assert status == 404
    assert b"import" not in body
