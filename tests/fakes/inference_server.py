"""Small real inference servers: well-behaved ones, and ones that answer as a test scripts it."""

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TLS = Path(__file__).parent / "tls"
USAGE = {"prompt_tokens": 7, "completion_tokens": 4}


class Call:
    """One request to a server, and the ways to answer it.

    Attributes:
        method, path, headers, body: Of the request; the body parsed, None if there is none.
        pause: Waits some seconds, or until the server is closed.
    """

    def __init__(self, handler, pause):
        self.method, self.path, self.headers = handler.command, handler.path, handler.headers
        self.raw_body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        self.body = json.loads(self.raw_body) if self.raw_body else None
        self.pause = pause
        self._handler = handler

    def json(self, content, status=200, **headers):
        """Answers with JSON."""
        self.whole(json.dumps(content).encode(), status, **headers)

    def whole(self, content, status=200, **headers):
        """Answers with a body whose length is told, rightly unless a header says otherwise."""
        self._start(status, {"Content_Length": str(len(content)), **headers})
        self.write(content)

    def start_stream(self):
        """Begins a chunked answer of events."""
        self._start(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})

    def event(self, content):
        """Sends one event: bytes as they are, anything else as JSON."""
        text = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.chunk(b"data: " + text + b"\n\n")

    def chunk(self, content):
        """Sends a chunk of a chunked answer; an empty one ends it."""
        self.write(b"%x\r\n%b\r\n" % (len(content), content))

    def write(self, content):
        """Sends bytes as they are."""
        self._handler.wfile.write(content)

    def cut(self):
        """Closes the connection behind what was sent."""
        self._handler.close_connection = True

    def _start(self, status, headers):
        self._handler.send_response(status)
        for name, value in headers.items():
            self._handler.send_header(name.replace("_", "-"), value)
        self._handler.end_headers()


class InferenceServer:
    """An HTTP server that answers by a function of the call, and remembers the calls.

    Args:
        answer: Answers a Call.
        tls: True for https, with a certificate that `TLS / "server.pem"` vouches for.
    """

    def __init__(self, answer, *, tls=False):
        self.calls = []
        self.connections = set()
        self._closed = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            server_version, sys_version = "fake/1.0", ""
            disable_nagle_algorithm = True

            def handle_any(self):
                outer.connections.add(self.client_address)
                call = Call(self, outer._closed.wait)
                outer.calls.append(call)
                try:
                    answer(call)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            do_GET = do_POST = handle_any  # noqa: N815 - the base class's names

            def log_message(self, *_):
                """Says nothing: the test asks what it wants to know."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        # A client that breaks off is what many of the tests are about.
        self._server.handle_error = lambda *_: None
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(TLS / "server.pem")
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.url = f"http{'s' * tls}://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def posts(self, ending=""):
        """The calls that asked for an inference."""
        return [c for c in self.calls if c.method == "POST" and c.path.endswith(ending)]

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._closed.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def piece(api, text, **more):
    """An event that brings a piece of text."""
    body = {"delta": {"content": text}} if api == "chat" else {"text": text}
    return {"choices": [{"index": 0, **body, **more}]}


def generating(pieces=4, *, api="chat", usage=USAGE, pause_s=0.0, token=None):
    """A well-behaved server of the model "m": pieces of text with pauses between them."""

    def answer(call):
        if token is not None and call.headers.get("Authorization") != f"Bearer {token}":
            call.json({"error": f"not {call.headers.get('Authorization')}"}, 401)
        elif call.method == "GET":
            said = {"/v1/models": MODELS, "/version": {"version": "0.9.1"}}.get(call.path)
            call.json(said or {}, 200 if said else 404)
        else:
            call.start_stream()
            if api == "chat":
                call.event({"choices": [{"index": 0, "delta": {"role": "assistant"}}]})
            for i in range(pieces):
                call.pause(pause_s)
                call.event(piece(api, f"w{i} "))
            call.event(piece(api, "", finish_reason="length"))
            if usage is not None:
                call.event({"choices": [], "usage": usage})
            call.event(b"[DONE]")
            call.chunk(b"")

    return answer


MODELS = {
    "object": "list",
    "data": [
        {"id": "m", "root": "/models/m-7b", "owned_by": "us", "max_model_len": 4096, "created": 1},
        {"id": "other"},
    ],
}


def answering_tensors(outputs, pause_s=0.0):
    """A well-behaved server of the open inference protocol with the model "m"."""
    said = {
        "/v2": {"name": "triton", "version": "2.50.0", "extensions": []},
        "/v2/models/m": {"name": "m", "versions": ["1", "2"], "platform": "onnxruntime_onnx"},
        "/v2/repository/index": [{"name": "m"}, {"name": "n"}],
    }

    def answer(call):
        if call.path in said:
            call.json(said[call.path])
        elif call.path in {"/v2/models/m/infer", "/v2/models/m/versions/2/infer"}:
            call.pause(pause_s)
            call.json({"model_name": "m", "outputs": outputs})
        else:
            call.json({"error": "unknown model"}, 404)

    return answer


class Notes:
    """The worker's end of a wire in the test's own process: keeps what is reported.

    Sensors that read at once: it marks the edge behind a region as soon as it is told.
    """

    def __init__(self):
        self.lines = []
        self.marked = threading.Event()

    def report(self, line_type, /, **fields):
        # As JSON has it, without NaN.
        self.lines.append(json.loads(json.dumps({"type": line_type, **fields}, allow_nan=False)))
        if line_type == "region_end":
            self.marked.set()

    def progress(self, phase, done, note=""):
        self.report("progress", phase=phase, done=done, note=note)

    def of(self, line_type):
        return [line for line in self.lines if line["type"] == line_type]


def request(url, kind="openai", **more):
    """A request to the worker, of a short run."""
    return {
        "cmd": "probe",
        "probe": "p",
        "kind": kind,
        "url": url,
        "api": "chat",
        "model": "m",
        "prompt": "Say something.",
        "max_tokens": 4,
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [0.5, 1.5]}],
        "requests": 6,
        "warmup_requests": 2,
        "concurrency": 2,
        "timeout_s": 10.0,
        "ca_file": None,
        "token_path": None,
        "energy": False,
        "region_s": 0.5,
        "tail_s": 1.0,
        "sample_cap_s": 20.0,
        "seed": 3,
        **more,
    }
