"""The cloud instance this host is (type, region, market), by DMI and metadata services.

DMI identifies the cloud without a request. Sources: cloud-init (`tools/ds-identify`,
`cloudinit/sources`) for the strings; "Detect whether a host is an EC2 instance" in the EC2 User
Guide. On AWS Nitro and bare metal `product_name` is the instance type, as AWS's own SDK reads it
(`aws_system_environment_get_virtualization_product_name` of aws-c-common, used by aws-c-s3: "the
dmi info is correct, and we can use it"); on AWS Xen, and on other clouds, DMI has only the cloud.

From metadata services only single values are requested where a service has them, because whole
documents contain start-up scripts and keys. Sources: EC2 User Guide "Use the Instance Metadata
Service" (IMDSv2), Azure "Instance Metadata Service", Google "View and query VM metadata", Oracle
"Instance Metadata Service v2".
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Final

from costprobe.adapters.host.redaction import outside_text
from costprobe.adapters.http.access import Destination, ExchangeLimits
from costprobe.adapters.http.client import HttpClient
from costprobe.adapters.http.errors import DeliveryError
from costprobe.core.outside import UnusableInputError, bounded_object, read_regular
from costprobe.core.records import Instance, Market

logger = logging.getLogger(__name__)

MAX_DMI_BYTES: Final = 256
_FOLDER: Final = "sys/class/dmi/id"
_HYPERVISOR: Final = "sys/hypervisor/uuid"
_AZURE_TAG: Final = "7783-7084-3265-9085-8269-3286-77"
_ORACLE_TAG: Final = "OracleCloud.com"
_EC2_TYPE: Final = re.compile(r"[a-z][a-z0-9-]{1,30}\.[a-z0-9-]{1,30}")
_EC2_ID: Final = re.compile(r"i-[0-9a-f]{8,17}")
# Clouds that the vendor names, and whose metadata is not asked for.
_BY_VENDOR: Final = {
    "Akamai": "akamai",
    "DigitalOcean": "digitalocean",
    "Hetzner": "hetzner",
    "Scaleway": "scaleway",
    "Vultr": "vultr",
}
# The address of every metadata service: link-local, so that it never leaves the host.
_ADDRESS: Final = "http://169.254.169.254"
MAX_ANSWER_BYTES: Final = 64 << 10
_OK: Final = 200
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,512}")
_TTL_S: Final = "60"
_ZONE_SUFFIX: Final = re.compile(r"-[a-z]$")
# Time limit of all requests to a metadata service together.
LIMIT_S: Final = 1.0


# The strings that every user may read.
_NAMES: Final = (
    *("sys_vendor", "product_name", "bios_vendor", "bios_version"),
    "chassis_asset_tag",
)


def read_dmi(root: Path) -> dict[str, str]:
    """Return the DMI strings below a root folder, which is / on a host, and Xen's id; empty where there is none."""
    texts = {name: _text(root / _FOLDER / name) for name in _NAMES}
    return texts | {"hypervisor_uuid": _text(root / _HYPERVISOR)}


def cloud_of(dmi: Mapping[str, str]) -> Instance | None:
    """Return the cloud of a host, with what its DMI tables have; None if it is no cloud's."""
    vendor, product = dmi["sys_vendor"], dmi["product_name"]
    is_nitro = "Amazon EC2" in (vendor, dmi["bios_vendor"])
    is_xen = vendor == "Xen" and (
        dmi["bios_version"].endswith(".amazon") or dmi["hypervisor_uuid"].lower().startswith("ec2")
    )
    if is_nitro or is_xen:
        return Instance("aws", product if _EC2_TYPE.fullmatch(product) else "")
    if dmi["chassis_asset_tag"] == _AZURE_TAG:
        return Instance("azure")
    if product == "Google Compute Engine":
        return Instance("gcp")
    if dmi["chassis_asset_tag"] == _ORACLE_TAG:
        return Instance("oci")
    cloud = _BY_VENDOR.get(vendor)
    return None if cloud is None else Instance(cloud)


def instance_id(root: Path) -> str | None:
    """Return the id of this EC2 instance, by which AWS bills it; None on other hosts.

    Source: cloud-init's `tools/ds-identify`: on Nitro `board_asset_tag` is the instance id.
    """
    tag = _text(root / _FOLDER / "board_asset_tag")
    return tag if _EC2_ID.fullmatch(tag) else None


def _text(path: Path) -> str:
    try:
        text = read_regular(path, MAX_DMI_BYTES).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return text if text.isprintable() else ""


class MetadataError(Exception):
    """A metadata service did not answer, or not as documented."""


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
        """Return the body of a response with status 200.

        Raises:
            MetadataError: There is none within the time limit.
        """
        left_s = self._end_s - self._monotonic_s()
        if left_s <= 0:
            raise MetadataError("no answer within the time limit")
        client = HttpClient(ExchangeLimits(left_s, left_s, max_body_bytes=MAX_ANSWER_BYTES))
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


def aws(request: MetadataClient) -> Instance:
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


def azure(request: MetadataClient) -> Instance:
    """Return the instance by Azure's service; errors as in `aws`."""
    # The first version with the priority; from 2021-01-01 on there would be user data, too.
    path = "/metadata/instance?api-version=2020-12-01"
    whole = _object(request(path, {"Metadata": "true"}))
    compute = whole.get("compute")
    document = compute if isinstance(compute, dict) else whole
    market = _market(str(document.get("priority", "")), spot="Spot", on_demand="Regular")
    return Instance("azure", _name(document, "vmSize"), _name(document, "location"), market)


def gcp(request: MetadataClient) -> Instance:
    """Return the instance by Google's service; errors as in `aws`."""
    header, root = {"Metadata-Flavor": "Google"}, "/computeMetadata/v1/instance"
    # "projects/123/machineTypes/g2-standard-4", "projects/123/zones/us-central1-a"
    machine = _checked(request(f"{root}/machine-type", header).rpartition("/")[2])
    zone = _checked(request(f"{root}/zone", header).rpartition("/")[2])
    preemptible = _optional(request, f"{root}/scheduling/preemptible", header)
    market = _market(preemptible, spot="TRUE", on_demand="FALSE")
    return Instance("gcp", machine, _ZONE_SUFFIX.sub("", zone), market)


def oci(request: MetadataClient) -> Instance:
    """Return the instance by Oracle's service; errors as in `aws`."""
    header, root = {"Authorization": "Bearer Oracle"}, "/opc/v2/instance"
    shape = _checked(request(f"{root}/shape", header))
    return Instance("oci", shape, _checked(request(f"{root}/canonicalRegionName", header)))


SERVICES: Final[Mapping[str, Callable[[MetadataClient], Instance]]] = {
    "aws": aws,
    "azure": azure,
    "gcp": gcp,
    "oci": oci,
}


def _optional(request: MetadataClient, path: str, headers: Mapping[str, str]) -> str:
    try:
        return request(path, headers)
    except MetadataError:
        return ""


def _object(text: str) -> dict[str, object]:
    try:
        return bounded_object(text, MAX_ANSWER_BYTES)
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


class InstanceDetector:
    """Detects the instance: by DMI, then by the metadata service of the cloud that DMI names.

    Nothing is requested on a host that is no cloud's. A complete result is kept for the process.

    Args:
        root: Root folder of the host's /sys.
        address: URL of the metadata services, without a path.
        limit_s: Time limit of all requests together in s.
    """

    def __init__(
        self, root: Path = Path("/"), address: str = _ADDRESS, limit_s: float = LIMIT_S
    ) -> None:
        self._root = root
        self._address = address
        self._limit_s = limit_s
        self._lock = Lock()
        self._known: Instance | None = None

    def instance(self) -> Instance | None:
        """Return the instance; None if the host is no cloud's.

        Without an answer of the metadata service it has what DMI has, and the next call asks again.
        """
        with self._lock:
            found = self._known or self._detected()
            if found is None or found.is_complete or found.cloud not in SERVICES:
                self._known = found
            return found

    def _detected(self) -> Instance | None:
        by_dmi = cloud_of(read_dmi(self._root))
        if by_dmi is None or by_dmi.cloud not in SERVICES:
            return by_dmi
        client = MetadataClient(self._address, self._limit_s, time.monotonic)
        try:
            return SERVICES[by_dmi.cloud](client)
        except MetadataError as error:
            reason = outside_text(str(error))
            logger.info("metadata service of %s: %s", by_dmi.cloud, reason)
            return by_dmi
