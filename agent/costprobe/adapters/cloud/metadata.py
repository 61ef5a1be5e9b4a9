"""Instance type, region and market from the metadata services of clouds.

Only single values are requested where a service has them, because whole documents contain start-up
scripts and keys. Sources: EC2 User Guide "Use the Instance Metadata Service" (IMDSv2), Azure
"Instance Metadata Service", Google "View and query VM metadata", Oracle "Instance Metadata Service v2".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from costprobe.adapters.net.client import HttpClient
from costprobe.adapters.net.destination import Destination
from costprobe.adapters.net.errors import DeliveryError
from costprobe.adapters.net.limits import ExchangeLimits
from costprobe.core.bounded import UnusableInputError, bounded_object
from costprobe.domain.pricing.instance import Instance, Market

# The address of every one of them: link-local, so that it never leaves the host.
ADDRESS: Final = "http://169.254.169.254"
MAX_BYTES: Final = 64 << 10
_OK: Final = 200
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,512}")
_TTL_S: Final = "60"
_ZONE_SUFFIX: Final = re.compile(r"-[a-z]$")


class MetadataError(Exception):
    """A metadata service did not answer, or not as documented."""


class Request(Protocol):
    """Sends a request to the metadata service."""

    def __call__(self, path: str, headers: Mapping[str, str], method: str = "GET") -> str:
        """Return the body of a response with status 200.

        Raises:
            MetadataError: There is none within the time limit.
        """


class MetadataClient:
    """Sends requests to a metadata service, all within one time limit.

    Args:
        address: URL of the service, without a path.
        limit_s: Time limit of all requests together in s.
        monotonic_s: The monotonic clock in s.
    """

    def __init__(self, address: str, limit_s: float, monotonic_s: Callable[[], float]) -> None:
        self._address = address
        self._monotonic_s = monotonic_s
        self._end_s = monotonic_s() + limit_s

    def __call__(self, path: str, headers: Mapping[str, str], method: str = "GET") -> str:
        """Return the body of a response with status 200; see `Request`."""
        left_s = self._end_s - self._monotonic_s()
        if left_s <= 0:
            raise MetadataError("no answer within the time limit")
        client = HttpClient(ExchangeLimits(left_s, left_s, max_body_bytes=MAX_BYTES))
        try:
            destination = Destination.parse(f"{self._address}{path}")
            response = client.request(
                method, destination, headers, b"" if method == "PUT" else None
            )
        except DeliveryError as error:
            raise MetadataError(error.reason) from None
        finally:
            client.close()
        if response.status != _OK:
            raise MetadataError(f"status {response.status}")
        try:
            return response.body.decode("ascii").strip()
        except UnicodeDecodeError:
            raise MetadataError("not a text") from None


def aws(request: Request) -> Instance:
    """Return the instance by AWS IMDSv2; a hop limit of 1 leaves a container without an answer.

    Raises:
        MetadataError: No answer, or another than documented.
    """
    ttl = {"X-aws-ec2-metadata-token-ttl-seconds": _TTL_S}
    token = request("/latest/api/token", ttl, "PUT")
    if not _TOKEN.fullmatch(token):
        raise MetadataError("no token")
    header = {"X-aws-ec2-metadata-token": token}
    document = _object(request("/latest/dynamic/instance-identity/document", header))
    life_cycle = _optional(request, "/latest/meta-data/instance-life-cycle", header)
    market = _market(life_cycle, spot="spot", on_demand="on-demand")
    return Instance("aws", _name(document, "instanceType"), _name(document, "region"), market)


def azure(request: Request) -> Instance:
    """Return the instance by Azure's service; errors as in `aws`."""
    # The first version with the priority; from 2021-01-01 on there would be user data, too.
    path = "/metadata/instance?api-version=2020-12-01"
    whole = _object(request(path, {"Metadata": "true"}))
    compute = whole.get("compute")
    document = compute if isinstance(compute, dict) else whole
    market = _market(str(document.get("priority", "")), spot="Spot", on_demand="Regular")
    return Instance("azure", _name(document, "vmSize"), _name(document, "location"), market)


def gcp(request: Request) -> Instance:
    """Return the instance by Google's service; errors as in `aws`."""
    header, root = {"Metadata-Flavor": "Google"}, "/computeMetadata/v1/instance"
    # "projects/123/machineTypes/g2-standard-4", "projects/123/zones/us-central1-a"
    machine = _checked(request(f"{root}/machine-type", header).rpartition("/")[2])
    zone = _checked(request(f"{root}/zone", header).rpartition("/")[2])
    preemptible = _optional(request, f"{root}/scheduling/preemptible", header)
    market = _market(preemptible, spot="TRUE", on_demand="FALSE")
    return Instance("gcp", machine, _ZONE_SUFFIX.sub("", zone), market)


def oci(request: Request) -> Instance:
    """Return the instance by Oracle's service; errors as in `aws`."""
    header, root = {"Authorization": "Bearer Oracle"}, "/opc/v2/instance"
    try:
        shape = _checked(request(f"{root}/shape", header))
        return Instance("oci", shape, _checked(request(f"{root}/canonicalRegionName", header)))
    except MetadataError:
        # A service without single values has the whole document only.
        document = _object(request(f"{root}/", header))
    return Instance("oci", _name(document, "shape"), _name(document, "canonicalRegionName"))


SERVICES: Final[Mapping[str, Callable[[Request], Instance]]] = {
    "aws": aws,
    "azure": azure,
    "gcp": gcp,
    "oci": oci,
}


def _optional(request: Request, path: str, headers: Mapping[str, str]) -> str:
    try:
        return request(path, headers)
    except MetadataError:
        return ""


def _object(text: str) -> dict[str, object]:
    try:
        return bounded_object(text, MAX_BYTES)
    except UnusableInputError as error:
        raise MetadataError(str(error)) from None


def _name(document: Mapping[str, object], key: str) -> str:
    return _checked(document.get(key))


def _checked(value: object) -> str:
    """Return a name of an instance type or a region."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise MetadataError("no name of an instance type or a region")
    return value


def _market(value: str, *, spot: str, on_demand: str) -> Market:
    if value == spot:
        return "spot"
    return "on_demand" if value == on_demand else ""
