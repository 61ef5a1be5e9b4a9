"""The cloud of a host by its DMI tables, without a request.

Sources: cloud-init (`tools/ds-identify`, `cloudinit/sources`) for the strings; "Detect whether a host
is an EC2 instance" in the EC2 User Guide. On AWS Nitro and bare metal `product_name` is the instance
type, as AWS's own SDK reads it (`aws_system_environment_get_virtualization_product_name` of aws-c-common,
used by aws-c-s3: "the dmi info is correct, and we can use it"); on AWS Xen, and on other clouds, DMI has only the cloud.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from costprobe.core.regular_file import read_regular
from costprobe.domain.pricing.instance import Instance

MAX_BYTES: Final = 256
_FOLDER: Final = "sys/class/dmi/id"
_HYPERVISOR: Final = "sys/hypervisor/uuid"
_AZURE_TAG: Final = "7783-7084-3265-9085-8269-3286-77"
_ORACLE_TAG: Final = "OracleCloud.com"
_EC2_TYPE: Final = re.compile(r"[a-z][a-z0-9-]{1,30}\.[a-z0-9-]{1,30}")
# Clouds that the vendor names, and whose metadata is not asked for.
_BY_VENDOR: Final = {
    "Akamai": "akamai",
    "DigitalOcean": "digitalocean",
    "Hetzner": "hetzner",
    "Scaleway": "scaleway",
    "Vultr": "vultr",
}


@dataclass(frozen=True, slots=True)
class Dmi:
    """Strings of a host's DMI tables, as every user may read them; empty where there is none.

    Attributes:
        sys_vendor, product_name, bios_vendor, bios_version, chassis_asset_tag: Of these names.
        hypervisor_uuid: Xen's identifier of the virtual machine.
    """

    sys_vendor: str = ""
    product_name: str = ""
    bios_vendor: str = ""
    bios_version: str = ""
    chassis_asset_tag: str = ""
    hypervisor_uuid: str = ""


def read_dmi(root: Path) -> Dmi:
    """Return the DMI strings below a root folder, which is / on a host."""
    names = [field.name for field in fields(Dmi) if field.name != "hypervisor_uuid"]
    texts = {name: _text(root / _FOLDER / name) for name in names}
    return Dmi(**texts, hypervisor_uuid=_text(root / _HYPERVISOR))


def cloud_of(dmi: Dmi) -> Instance | None:
    """Return the cloud of a host, with what its DMI tables have; None if it is no cloud's."""
    is_nitro = dmi.sys_vendor == "Amazon EC2" or dmi.bios_vendor == "Amazon EC2"
    is_xen = dmi.sys_vendor == "Xen" and (
        dmi.bios_version.endswith(".amazon") or dmi.hypervisor_uuid.lower().startswith("ec2")
    )
    if is_nitro or is_xen:
        is_type = _EC2_TYPE.fullmatch(dmi.product_name) is not None
        return Instance("aws", dmi.product_name if is_type else "")
    if dmi.chassis_asset_tag == _AZURE_TAG:
        return Instance("azure")
    if dmi.product_name == "Google Compute Engine":
        return Instance("gcp")
    if dmi.chassis_asset_tag == _ORACLE_TAG:
        return Instance("oci")
    cloud = _BY_VENDOR.get(dmi.sys_vendor)
    return None if cloud is None else Instance(cloud)


def _text(path: Path) -> str:
    try:
        text = read_regular(path, MAX_BYTES).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return text if text.isprintable() else ""
