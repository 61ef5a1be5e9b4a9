"""The dashboard rejects foreign Host headers and writes, and sends restrictive security headers."""

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Access-Control-Allow-Origin": None,
    "Server": None,
}
HOSTS = {
    "localhost": 200,
    "LOCALHOST:9470": 200,
    "127.0.0.1:9470": 200,
    "[::1]:9470": 200,
    "10.1.2.3": 200,
    "rebound.example": 400,
    "localhost.rebound.example:9470": 400,
    "127.0.0.1.rebound.example": 400,
    "localhost:9470:1": 400,
    "": 400,
}


def test_every_response_has_the_security_headers(kept_page):
    for path in ("/", "/api/now", "/static/js/main.js", "/nothing", "/static/../app.py"):
        _, headers, _ = kept_page.request(path)
        assert {name: headers[name] for name in HEADERS} == HEADERS, path
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert not [word for word in ("unsafe", "http") if word in policy], path


def test_page_loads_nothing_from_other_hosts(kept_page):
    for path in ("/", "/static/page.css", "/static/js/main.js", "/static/js/chart.js"):
        status, _, body = kept_page.request(path)
        foreign = [word for word in (b"//cdn", b"https://") if word in body]
        assert (status, foreign) == (200, []), path
    html = kept_page.request("/")[2].decode()
    assert not [word for word in ("<style", " style=", "onclick") if word in html]


def test_methods_other_than_get_and_head_are_rejected(kept_page):
    for path in ("/", "/api/now"):
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            status, headers, _ = kept_page.request(path, method)
            assert (status, headers["Allow"]) == (405, "GET, HEAD"), (path, method)


def test_foreign_host_header_is_rejected(page_on, kept_page, kept_store, clock):
    answers = {host: kept_page.request("/api/now", headers={"Host": host}) for host in HOSTS}
    assert {host: status for host, (status, _, _) in answers.items()} == HOSTS
    assert b"--allow-host" in answers["rebound.example"][2]
    page = page_on(kept_store.path, clock, allowed_hosts=["GPU-01.example."])
    assert page.request("/api/now", headers={"Host": "gpu-01.example:9470"})[0] == 200


def test_only_files_of_the_page_are_served(kept_page):
    assert kept_page.request("/api/now?" + "x" * 5000)[0] == 414
    for path in ("/static/../../app.py", "/static/%2e%2e/app.py", "/../etc/passwd", "/static/js/"):
        status, _, body = kept_page.request(path)
        assert (status, b"import" in body) == (404, False), path
