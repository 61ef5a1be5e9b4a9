"""Fetching a metrics endpoint: one GET, with its credentials and limits."""

from __future__ import annotations

from pathlib import Path

from costprobe.adapters.net.client import HttpClient
from costprobe.adapters.net.destination import Destination
from costprobe.adapters.net.errors import DeliveryError
from costprobe.adapters.net.limits import ExchangeLimits
from costprobe.adapters.net.secret import Secret
from costprobe.adapters.net.status import Hints, HttpResponse, raise_for_status
from costprobe.adapters.serving.endpoint import MetricsEndpoint
from costprobe.adapters.serving.errors import ScrapeError
from costprobe.adapters.serving.exposition import MAX_BYTES

_OK = 200
_HINTS = Hints(
    unauthorized="check token_file",
    not_found="check the path, and that metrics are enabled",
)


class MetricsFetcher:
    """Fetches the metrics endpoints of a service, with a connection for each request.

    Args:
        endpoint: Its timeout, token and certificates.
        credentials: Where systemd stored this process's credentials; None without any.
    """

    def __init__(self, endpoint: MetricsEndpoint, credentials: Path | None) -> None:
        self._token = Secret("token", endpoint.token_file, endpoint.token_credential, credentials)
        limits = ExchangeLimits(
            endpoint.timeout_s, endpoint.timeout_s, max_body_bytes=MAX_BYTES + 1
        )
        self._client = HttpClient(limits, ca_file=endpoint.ca_file)

    def __call__(self, url: str) -> bytes:
        """Fetch an endpoint; return its body in the Prometheus text format.

        Raises:
            ScrapeError: No such response, in one line and without secrets or the URL.
        """
        headers = {"Accept": "text/plain;version=0.0.4"}
        try:
            destination = Destination.parse(url).unnamed()
            secrets = []
            if self._token.is_given:
                secrets.append(self._token.read_ascii())
                headers["Authorization"] = f"Bearer {secrets[0]}"
            response = self._client.request("GET", destination, headers)
            # Scrapes are not retried: only the message is used.
            raise_for_status(
                response, now_s=0.0, secrets=secrets, hints=_HINTS, is_tls=destination.is_tls
            )
        except DeliveryError as error:
            raise ScrapeError(error.reason) from None
        return _body(response)


def _body(response: HttpResponse) -> bytes:
    if response.status != _OK:
        raise ScrapeError(f"HTTP {response.status}")
    # The decompressed size of a response would not be limited.
    if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise ScrapeError("the response is compressed, which was not requested")
    if len(response.body) > MAX_BYTES:
        raise ScrapeError(f"the response is larger than {MAX_BYTES} bytes")
    return response.body
