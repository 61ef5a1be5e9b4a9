"""Small HTTP inference servers with valid or scripted responses."""

import itertools
import json
import threading

from fakes.servers import HttpServer

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
        """Send a JSON body."""
        self.whole(json.dumps(content).encode(), status, **headers)

    def whole(self, content, status=200, **headers):
        """Send a body with its Content-Length, which a header may override."""
        self._start(status, {"Content_Length": str(len(content)), **headers})
        self.write(content)

    def start_stream(self):
        """Start a chunked event stream."""
        self._start(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})

    def event(self, content):
        """Send one event: bytes unchanged, anything else as JSON."""
        text = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.chunk(b"data: " + text + b"\n\n")

    def chunk(self, content):
        """Send a chunk of a chunked body; an empty one ends it."""
        self.write(b"%x\r\n%b\r\n" % (len(content), content))

    def write(self, content):
        """Send bytes unchanged."""
        self._handler.wfile.write(content)

    def cut(self):
        """Close the connection after the sent bytes."""
        self._handler.close_connection = True

    def _start(self, status, headers):
        self._handler.send_response(status)
        for name, value in headers.items():
            self._handler.send_header(name.replace("_", "-"), value)
        self._handler.end_headers()


class InferenceServer(HttpServer):
    """An HTTP server that answers with a function of the call and records the calls.

    Args:
        answer: Answers a Call.
        tls: True for https.
    """

    def __init__(self, answer, *, tls=False):
        super().__init__(self._take, tls=tls)
        self._server.daemon_threads = False
        self.calls = []
        self.connections = set()
        self.ended = 0
        self._answer = answer
        self._closed = threading.Event()
        end = self._server.shutdown_request

        def shutdown_request(request):
            end(request)
            self.ended += 1

        self._server.shutdown_request = shutdown_request

    def _take(self, handler):
        self.connections.add(handler.client_address)
        call = Call(handler, self._closed.wait)
        self.calls.append(call)
        self._answer(call)

    def posts(self, ending=""):
        """The inference calls whose path ends with `ending`."""
        return [c for c in self.calls if c.method == "POST" and c.path.endswith(ending)]

    def __exit__(self, *_):
        self._closed.set()
        super().__exit__()


def piece(api, text, **more):
    """An event with a piece of text."""
    body = {"delta": {"content": text}} if api == "chat" else {"text": text}
    return {"choices": [{"index": 0, **body, **more}]}


def generating(pieces=4, *, api="chat", usage=USAGE, pause_s=0.0, token=None):
    """A valid server of the model "m": pieces of text with pauses between them."""

    def answer(call):
        if token is not None and call.headers.get("Authorization") != f"Bearer {token}":
            call.json({"error": f"not {call.headers.get('Authorization')}"}, 401)
        elif call.method == "GET":
            metadata = {"/v1/models": MODELS, "/version": {"version": "0.9.1"}}.get(call.path)
            call.json(metadata or {}, 200 if metadata else 404)
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


def answering_tensors(outputs, pause_s=0.0, cache_hits=None):
    """A valid server of the Open Inference Protocol with the model "m".

    Args:
        outputs: Tensors of each answer.
        pause_s: Time of an inference.
        cache_hits: Inferences after which a response cache answers; None for no statistics.
    """
    served = itertools.count()
    metadata = {
        "/v2": {"name": "triton", "version": "2.50.0", "extensions": []},
        "/v2/models/m": {"name": "m", "versions": ["1", "2"], "platform": "onnxruntime_onnx"},
        "/v2/repository/index": [{"name": "m"}, {"name": "n"}],
    }

    def answer(call):
        if call.path in metadata:
            call.json(metadata[call.path])
        elif call.path == "/v2/models/m/stats" and cache_hits is not None:
            hits = max(0, next(served) - cache_hits)
            stats = {"cache_hit": {"count": hits, "ns": 9}, "success": {"count": 9, "ns": 9}}
            call.json({"model_stats": [{"name": "m", "version": "1", "inference_stats": stats}]})
        elif call.path in {"/v2/models/m/infer", "/v2/models/m/versions/2/infer"}:
            next(served)
            call.pause(pause_s)
            call.json({"model_name": "m", "outputs": outputs})
        else:
            call.json({"error": "unknown model"}, 404)

    return answer


class Notes:
    """A Wire in the test's process that records the reports.

    Simulates sensors that read at once: it sets `marked` on "window_end".
    """

    def __init__(self):
        self.lines = []
        self.marked = threading.Event()

    def report(self, line_type, /, **fields):
        # Valid JSON only, without NaN.
        self.lines.append(json.loads(json.dumps({"type": line_type, **fields}, allow_nan=False)))
        if line_type == "window_end":
            self.marked.set()

    def progress(self, phase, done, note=""):
        self.report("progress", phase=phase, done=done, note=note)

    def of(self, line_type):
        return [line for line in self.lines if line["type"] == line_type]


def request(url, kind="openai", **more):
    """A worker request for a short run."""
    return {
        "cmd": "probe",
        "kind": kind,
        "url": url,
        "api": "chat",
        "model": "m",
        "prompt": "Say something.",
        "vary_prompt": True if kind == "openai" else None,
        "max_tokens": 4,
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [0.5, 1.5]}],
        "requests": 6,
        "warmup_requests": 2,
        "concurrency": 2,
        "timeout_s": 10.0,
        "ca_file": None,
        "token_file": None,
        "headers": {},
        "key_file": None,
        "key_header": "X-Api-Key",
        "energy": False,
        "window_s": 0.5,
        "tail_s": 1.0,
        "sample_cap_s": 20.0,
        "seed": 3,
        **more,
    }


def measured(url, kind="openai", notes=None, **more):
    """The result of a run of a probe of a server."""
    from costprobe.adapters.load_child.main import measure

    notes = notes or Notes()
    measure(notes, request(url, kind, **more))
    (result,) = notes.of("result")
    return result


def inferring(answer):
    """A server that answers inferences with `answer` and lists no models."""
    return InferenceServer(lambda c: c.json({}, 404) if c.method == "GET" else answer(c))
