"""Database servers on free loopback ports, and small scripted servers."""

import json
import re
import secrets
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from fakes.programs import require

START_TIMEOUT_S = 60.0
VISIBLE_TIMEOUT_S = 40.0
TLS = Path(__file__).parent / "tls"

INFLUXD_CONF = """
reporting-disabled = true
bind-address = "127.0.0.1:{rpc}"
[meta]
  dir = "{folder}/meta"
[data]
  dir = "{folder}/data"
  wal-dir = "{folder}/wal"
[monitor]
  store-enabled = false
[http]
  bind-address = "127.0.0.1:{port}"
  log-enabled = false
  auth-enabled = {auth}
"""


def free_port():
    """A port without a listener, outside the range of ephemeral ports.

    The port must still be free when a stopped server is started again, so it must not be in the
    ephemeral range (32768 and up by default). The choice must not depend on the seed of the test
    run, or two runs on one machine would choose the same port.
    """
    for _ in range(100):
        port = 12_000 + secrets.randbelow(20_000)
        with socket.socket() as found:
            try:
                found.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port below the ephemeral range")


def get(url, body=None, **query):
    """The body of an answer; errors are raised."""
    target = f"{url}?{urllib.parse.urlencode(query)}" if query else url
    with urllib.request.urlopen(target, body, timeout=60) as answer:  # noqa: S310 - our own server
        return answer.read()


def answered(url, body=None, **headers):
    """Status, headers and body of an answer, also of an error."""
    request = urllib.request.Request(url, body, headers)  # noqa: S310 - our own server
    try:
        answer = urllib.request.urlopen(request, timeout=60)  # noqa: S310 - as above
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        return answer.status, answer.headers, answer.read()


class Server:
    """A database's process that can be stopped and started again on the same port and data."""

    health = "/health"

    def __init__(self, folder):
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process = None

    def start(self):
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdout=log, stderr=subprocess.STDOUT, cwd=self.folder
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            assert self._process.poll() is None, (self.folder / "log").read_text()
            try:
                get(self.url + self.health)
            except urllib.error.HTTPError as error:
                if error.code < 500:
                    return self
            except OSError:
                pass
            else:
                return self
            time.sleep(0.05)
        raise AssertionError(f"not started: {(self.folder / 'log').read_text()}")

    def stop(self, how=signal.SIGTERM):
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def command(self):
        raise AssertionError("a server defines its own command")


class InfluxDB(Server):
    """InfluxDB 1.x."""

    health = "/ping"

    def __init__(self, folder, *, auth=False):
        super().__init__(folder)
        self._config = folder / "influxdb.conf"
        self._config.write_text(
            INFLUXD_CONF.format(
                folder=folder,
                port=self.port,
                rpc=free_port(),
                auth=str(auth).lower(),
            )
        )

    def command(self):
        return ["influxd", "-config", str(self._config)]

    def query(self, text, **more):
        """Run InfluxQL; return the series of all statements."""
        body = urllib.parse.urlencode({"q": text, "epoch": "ns", **more}).encode()
        results = json.loads(get(f"{self.url}/query", body))["results"]
        errors = [result["error"] for result in results if "error" in result]
        assert not errors, errors
        return [series for result in results for series in result.get("series", [])]

    def points(self, database):
        """All points: {(measurement, tags, time_ns): fields}, the types as InfluxDB has them."""
        # One statement per measurement: in a shared statement, a tag of one hides the fields of
        # the same name in the others.
        escape = str.maketrans({"\\": r"\\", '"': r"\""})
        names = [
            name.translate(escape)
            for series in self.query("SHOW MEASUREMENTS", db=database)
            for (name,) in series["values"]
        ]
        if not names:
            return {}
        found = {}
        text = "; ".join(f'SELECT * FROM "{name}" GROUP BY *' for name in names)  # noqa: S608 - our own server, and the names are escaped
        for series in self.query(text, db=database):
            tags = tuple(sorted((k, v) for k, v in series.get("tags", {}).items() if v))
            for row in series["values"]:
                values = dict(zip(series["columns"], row, strict=True))
                time_ns = values.pop("time")
                fields = {k: v for k, v in values.items() if v is not None}
                found.setdefault((series["name"], tags, time_ns), {}).update(fields)
        return found


class VictoriaMetrics(Server):
    """VictoriaMetrics, single node.

    Args:
        folder: For its data.
        options: Further options of its command line.
    """

    def __init__(self, folder, *, options=()):
        super().__init__(folder)
        self._options = options

    def command(self):
        return [
            "victoria-metrics",
            f"-storageDataPath={self.folder}/data",
            f"-httpListenAddr=127.0.0.1:{self.port}",
            "-retentionPeriod=100y",
            *self._options,
        ]

    def samples(self, wanted=()):
        """All samples: {(name, labels, time_ms): value}, without duplicates.

        Acknowledged samples become readable after a delay, also after a flush, so this waits for
        the wanted keys, with a limit.
        """
        ends_s = time.monotonic() + VISIBLE_TIMEOUT_S
        while True:
            found = self._samples_now()
            if set(wanted) <= set(found) or time.monotonic() > ends_s:
                return found
            time.sleep(0.2)

    def _samples_now(self):
        get(f"{self.url}/internal/force_flush")
        found = {}
        body = get(f"{self.url}/api/v1/export", **{"match[]": '{__name__!=""}'})
        for line in body.splitlines():
            series = _exported(line.decode())
            labels = series["metric"]
            name = labels.pop("__name__")
            for time_ms, value in zip(series["timestamps"], series["values"], strict=True):
                key = (name, tuple(sorted(labels.items())), time_ms)
                assert key not in found, f"doubled: {key}"
                found[key] = value
        return found


def _exported(line):
    """Parse a line of an export, which writes infinities in Go's form instead of Python's.

    VictoriaMetrics stores numeric text as a number, and "-Infinity" is numeric.
    """
    series, found, samples = line.rpartition('},"values":')
    samples = re.sub(r"([-+]?)Inf\b", lambda sign: sign[1].strip("+") + "Infinity", samples)
    return json.loads(series + found + samples)


class Alertmanager(Server):
    """A Prometheus Alertmanager with an empty receiver."""

    health = "/-/ready"

    def __init__(self, folder):
        super().__init__(folder)
        self._config = folder / "alertmanager.yml"
        self._config.write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")

    def command(self):
        return [
            "prometheus-alertmanager",
            f"--config.file={self._config}",
            f"--storage.path={self.folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--cluster.listen-address=",
        ]

    def active(self, **labels):
        """The firing alerts with these labels."""
        return [
            alert
            for alert in json.loads(get(f"{self.url}/api/v2/alerts"))
            if labels.items() <= alert["labels"].items()
        ]


class Prometheus(Server):
    """A Prometheus.

    Args:
        folder: For its data.
        targets: Hosts and ports to scrape, every second.
        rules: Rule files.
    """

    health = "/-/ready"

    def __init__(self, folder, *, targets=(), rules=()):
        super().__init__(folder)
        self._config = folder / "prometheus.yml"
        document = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "rule_files": [str(path) for path in rules],
            "scrape_configs": [
                {"job_name": "costprobe", "static_configs": [{"targets": list(targets)}]}
            ],
        }
        self._config.write_text(json.dumps(document))

    def command(self):
        return [
            "prometheus",
            f"--config.file={self._config}",
            f"--storage.tsdb.path={self.folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--storage.tsdb.retention.time=100y",
        ]

    def backfill(self, openmetrics):
        """Store samples with timestamps, in OpenMetrics; call it before the start."""
        (self.folder / "history.om").write_text(openmetrics)
        subprocess.run(
            ["promtool", "tsdb", "create-blocks-from", "openmetrics", "history.om", "data"],
            cwd=self.folder,
            check=True,
            capture_output=True,
        )

    def query(self, text, time_s=None):
        """The samples of an instant query: labels and value."""
        when = {} if time_s is None else {"time": time_s}
        document = json.loads(get(f"{self.url}/api/v1/query", query=text, **when))
        return [
            (sample["metric"], float(sample["value"][1])) for sample in document["data"]["result"]
        ]


@contextmanager
def running(server_type, folder, program, **options):
    """A started server, stopped at the end."""
    require(program)
    folder.mkdir(parents=True, exist_ok=True)
    server = server_type(folder, **options)
    try:
        yield server.start()
    finally:
        server.stop()


class UnixServer(ThreadingHTTPServer):
    """The same on a Unix socket."""

    address_family = socket.AF_UNIX

    def server_bind(self):
        self.socket.bind(self.server_address)


class HttpServer:
    """An HTTP server in threads of this process, running while the context is open.

    Args:
        answer: Gets the handler of each request.
        tls: True for https, with a certificate of the authority `TLS / "server.pem"`.
        address: Where it listens: IP address and port, or the path of a Unix socket.
    """

    def __init__(self, answer, *, tls=False, address=("127.0.0.1", 0)):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            server_version, sys_version = "fake/1.0", ""
            disable_nagle_algorithm = not isinstance(address, str)

            def handle_any(self):
                try:
                    answer(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            do_GET = do_POST = do_PUT = do_PATCH = do_HEAD = handle_any  # noqa: N815 - the base class's names

            def log_message(self, *_):
                """Log nothing."""

        kind = UnixServer if isinstance(address, str) else ThreadingHTTPServer
        self._server = kind(address, Handler)
        self._server.daemon_threads = True
        # Many tests abort connections or reject an unknown certificate: their errors are expected.
        self._server.handle_error = lambda *_: None
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(TLS / "server.pem")
            # The TLS handshake runs in the connection's thread, at the first read.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.url = (
            f"unix:{address}"
            if isinstance(address, str)
            else f"http{'s' * tls}://{address[0]}:{self._server.server_port}"
        )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Scripted(HttpServer):
    """An HTTP server that answers with a function of the request and records the requests.

    Args:
        answer: From (method, path, headers, body) to (status, headers, body).
        more: Of HttpServer.
    """

    def __init__(self, answer, **more):
        super().__init__(self._take, **more)
        self.requests = []
        self.clients = []
        self._respond = answer

    def _take(self, handler):
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        request = (handler.command, handler.path, dict(handler.headers), body)
        self.requests.append(request)
        self.clients.append(handler.client_address)
        status, headers, content = self._respond(*request)
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content)


class Talking:
    """A TCP server that handles connections with a function, one at a time.

    Args:
        talk: Receives a connected socket, which is closed when it returns.
    """

    def __init__(self, talk):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._talk = talk
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._serve)

    def _serve(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                self._talk(connection)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
