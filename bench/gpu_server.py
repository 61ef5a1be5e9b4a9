"""A small OpenAI-compatible server around the built-in decoder; no batching."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from costprobe_probes.sources.builtin import Decoder
from costprobe_probes.sources.kinds import SHAPES

NAME = "decoder"
CONTEXT = 512


class Model:
    """The built-in decoder with random weights: each token is one step with a KV cache of 512 tokens."""

    def __init__(self, device: str) -> None:
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
        decoder = Decoder(SHAPES["small" if device == "cpu" else "1B"], CONTEXT, is_prefill=False)
        decoder.fill(0)
        self.decoder = decoder.to(device, dtype).eval()
        self.cache = torch.zeros(decoder.cache_shape(1), device=device, dtype=dtype)
        self.device = device

    def next_token(self, token: int) -> int:
        """Return the token after one."""
        with torch.inference_mode():
            logits = self.decoder(torch.tensor([[token]], device=self.device), self.cache)
            return int(logits.argmax())


class Handler(BaseHTTPRequestHandler):
    """Completions and chat completions, streamed; one request at a time."""

    protocol_version = "HTTP/1.1"
    model: Model
    lock = threading.Lock()

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        """List the model, or answer the version."""
        listed = {"object": "list", "data": [{"id": NAME, "object": "model", "owned_by": "bench"}]}
        body = json.dumps(listed if self.path.endswith("/models") else {"version": "1"}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """Stream as many tokens as requested."""
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        is_chat = "chat" in self.path
        prompt = request["messages"][0]["content"] if is_chat else request["prompt"]
        words, count = str(prompt).split() or [""], int(request.get("max_tokens", 16))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        with self.lock:
            token = len(words)
            for _ in range(count):
                token = self.model.next_token(token)
                word = f" t{token}"
                self._send_choice({"delta": {"content": word}} if is_chat else {"text": word})
        self._send_choice(
            {"finish_reason": "length", **({"delta": {}} if is_chat else {"text": ""})}
        )
        usage = {"prompt_tokens": len(words), "completion_tokens": count}
        usage["total_tokens"] = len(words) + count
        self._send(json.dumps({"choices": [], "usage": usage}))
        self._send("[DONE]")
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _send_choice(self, choice: dict[str, Any]) -> None:
        self._send(json.dumps({"choices": [{"index": 0, **choice}]}))

    def _send(self, text: str) -> None:
        data = f"data: {text}\n\n".encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()


def main() -> None:
    """Serve on a free port, which is the first line of output."""
    Handler.model = Model("cuda" if torch.cuda.is_available() else "cpu")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
