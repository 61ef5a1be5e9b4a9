"""A server with the OpenAI API whose timing is scripted, and which records when it sent each token.

Usage: python bench/scripted_server.py LAW SCALE

It prints its port; GET /records returns what it recorded. SCALE multiplies all times.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

SLOTS = 6
Tokens = AsyncIterator[int]
Law = Callable[[dict[str, Any]], Tokens]


SCALE = float(sys.argv[2]) if __name__ == "__main__" else 1.0


async def _paced(first_s: float, gap_s: float, chunks: int, tokens: int = 1) -> Tokens:
    """Yield the tokens of each chunk at fixed times, which do not drift."""
    first_s, gap_s = first_s * SCALE, gap_s * SCALE
    now_s = asyncio.get_running_loop().time()
    for index in range(chunks):
        at_s = now_s + first_s + index * gap_s
        await asyncio.sleep(at_s - asyncio.get_running_loop().time())
        yield tokens


class Laws:
    """The timing laws, by name."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(SLOTS)
        self._rng = random.Random(7)
        self._batch = 0
        self._step: asyncio.Event | None = None
        self._seen: set[str] = set()

    def constant(self, body: dict[str, Any]) -> Tokens:
        """The same times for each request."""
        return _paced(0.15, 0.03, body["max_tokens"])

    async def queue(self, body: dict[str, Any]) -> Tokens:
        """A first-come queue for a few slots."""
        async with self._slots:
            async for tokens in _paced(0.1, 0.02, body["max_tokens"]):
                yield tokens

    def bursts(self, body: dict[str, Any]) -> Tokens:
        """Several tokens in a chunk, as with speculative decoding."""
        tokens = min(4, body["max_tokens"])
        return _paced(0.15, 0.1, body["max_tokens"] // tokens, tokens)

    def stragglers(self, body: dict[str, Any]) -> Tokens:
        """One of ten requests takes eight times as long."""
        factor = 8 if self._rng.random() < 0.1 else 1
        return _paced(0.1, 0.02 * factor, body["max_tokens"])

    def cache(self, body: dict[str, Any]) -> Tokens:
        """A prefix cache: the first half of a prompt is computed once."""
        prompt = body["messages"][0]["content"]
        prefix = prompt[: len(prompt) // 3]
        is_hit = prefix in self._seen
        self._seen.add(prefix)
        return _paced(0.1 if is_hit else 0.3, 0.03, body["max_tokens"])

    async def batching(self, body: dict[str, Any]) -> Tokens:
        """Steps that all requests share, longer with each of them."""
        self._batch += 1
        try:
            for _ in range(body["max_tokens"]):
                await self._next_step()
                yield 1
        finally:
            self._batch -= 1

    async def _next_step(self) -> None:
        if self._step is None:
            self._step = asyncio.Event()
            asyncio.get_running_loop().create_task(self._run_step(self._step))
        await self._step.wait()

    async def _run_step(self, step: asyncio.Event) -> None:
        await asyncio.sleep((0.03 + 0.002 * self._batch) * SCALE)
        self._step = None
        step.set()


class ScriptedServer:
    """Answers requests by a law, and records them.

    Args:
        law: Yields the tokens of each chunk of an answer, at their times.
    """

    def __init__(self, law: Law) -> None:
        self._law = law
        self._records: list[dict[str, Any]] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (
                        int(line[15:])
                        for line in head.split(b"\r\n")
                        if line[:15].lower() == b"content-length:"
                    ),
                    0,
                )
                body = await reader.readexactly(length)
                received_ns = time.monotonic_ns()
                if length:
                    await self._stream(writer, json.loads(body), received_ns)
                else:
                    is_records = head.startswith(b"GET /records")
                    content = json.dumps(self._records if is_records else {"data": [{"id": "m"}]})
                    writer.write(
                        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b"
                        % (len(content), content.encode())
                    )
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _stream(
        self, writer: asyncio.StreamWriter, body: dict[str, Any], received_ns: int
    ) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        sent = []
        async for tokens in self._law(body):
            # Before the write, which sends: the client may have it before the next line runs.
            sent.append([time.monotonic_ns(), tokens])
            _event(writer, {"choices": [{"delta": {"content": "w " * tokens}}]})
        usage = {
            "prompt_tokens": len(body["messages"][0]["content"].split()),
            "completion_tokens": sum(tokens for _, tokens in sent),
        }
        _event(writer, {"choices": [{"delta": {}, "finish_reason": "length"}], "usage": usage})
        writer.write(b"0\r\n\r\n")
        salt = salt_of(body["messages"][0]["content"].encode())
        self._records.append({"salt": salt, "received_ns": received_ns, "sent": sent})
        await writer.drain()


def salt_of(body: bytes) -> str:
    """Return the digits that distinguish the prompt of a request."""
    found = re.search(rb"[0-9]{12}", body)
    return found[0].decode() if found else ""


def _event(writer: asyncio.StreamWriter, content: dict[str, Any]) -> None:
    text = b"data: " + json.dumps(content).encode() + b"\n\n"
    writer.write(b"%x\r\n%b\r\n" % (len(text), text))


async def main() -> None:
    """Serve until the process is ended."""
    law: Law = getattr(Laws(), sys.argv[1])
    server = await asyncio.start_server(ScriptedServer(law).handle, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
