"""Asking a database over HTTP: bounded in time and size, with no secret in any error."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import urllib3

from agent.influx_setup.wanted import SetupError
from agent.sinks.answers import reason_of, words_of
from agent.sinks.bounded import MAX_ANSWER_BYTES, pool_of
from agent.sinks.settings import SinkSettings

_OK = range(200, 300)
_UNAUTHORIZED = {401, 403}


class Api:
    """One database's HTTP interface.

    Args:
        settings: The sink's: address, authority, proxy, timeout.
        headers: Of each request, with the credentials.
        secrets: What no error may hold.
    """

    def __init__(
        self, settings: SinkSettings, headers: Mapping[str, str], secrets: Sequence[str]
    ) -> None:
        self._url = settings.url.rstrip("/")
        self._headers = {"User-Agent": "infercost", **headers}
        self._secrets = secrets
        self._pool = pool_of(settings)

    def close(self) -> None:
        """Closes the connection."""
        self._pool.clear()

    def get(self, path: str, **query: str) -> Any:  # noqa: ANN401 - JSON
        """The JSON of an answer; None where there is none of that name.

        Raises:
            SetupError: No answer, a refusal, or nothing that is JSON.
        """
        return self._ask("GET", f"{path}?{urlencode(query)}", None, {})

    def send(self, method: str, path: str, content: Mapping[str, object]) -> Any:  # noqa: ANN401 - JSON
        """Sends JSON; the JSON of the answer.

        Raises:
            SetupError: As `get` does.
        """
        headers = {"Content-Type": "application/json"}
        return self._ask(method, path, json.dumps(content).encode(), headers)

    def query(self, text: str, *secrets: str) -> list[dict[str, Any]]:
        """Runs one InfluxQL statement; its series.

        Args:
            text: The statement.
            secrets: What it holds and no error may.

        Raises:
            SetupError: As `get` does, or the statement is refused.
        """
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        body = urlencode({"q": text}).encode()
        answer = self._ask("POST", "/query", body, headers, secrets)
        try:
            (result,) = answer["results"]
            series = result.get("series", [])
        except (AttributeError, KeyError, TypeError, ValueError):
            raise SetupError(f"{self._url}: that is no answer of an InfluxDB 1.x") from None
        if "error" in result:
            words = json.dumps({"error": result["error"]}).encode()
            raise SetupError(f"{self._url}: {reason_of(words, [*self._secrets, *secrets])}")
        return list(series)

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        more_secrets: Sequence[str] = (),
    ) -> Any:  # noqa: ANN401 - JSON
        try:
            answer = self._pool.request(
                method,
                self._url + path,
                body=body,
                headers={**self._headers, **headers},
                redirect=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            # Without the cause: the library's own text may hold the request.
            raise SetupError(f"{self._url}: {words_of(error)}") from None
        if answer.status not in _OK:
            reason = reason_of(answer.data, [*self._secrets, *more_secrets])
            hint = "; may these credentials do that?" if answer.status in _UNAUTHORIZED else ""
            raise SetupError(f"{self._url}: HTTP {answer.status}: {reason}{hint}")
        try:
            return json.loads(answer.data or b"null")
        except (ValueError, RecursionError):
            size = f"of more than {MAX_ANSWER_BYTES >> 10} KiB"
            raise SetupError(f"{self._url}: an answer that is no JSON, or {size}") from None
