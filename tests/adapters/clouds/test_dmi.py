"""The cloud and instance type by DMI tables, recorded on instances and on other machines."""

from costprobe.adapters.clouds.instance import cloud_of, read_dmi
from costprobe.core.records import Instance

AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"
# Files below sys/class/dmi/id -> the instance.
TREES = {
    "EC2 Nitro": (
        {"sys_vendor": "Amazon EC2", "product_name": "p5.48xlarge", "bios_vendor": "Amazon EC2"},
        Instance("aws", "p5.48xlarge"),
    ),
    "EC2 bare metal": (
        {"sys_vendor": "Amazon EC2", "product_name": "g4dn.metal"},
        Instance("aws", "g4dn.metal"),
    ),
    "EC2 of a family with a hyphen": (
        {"sys_vendor": "Amazon EC2", "product_name": "p6-b200.48xlarge"},
        Instance("aws", "p6-b200.48xlarge"),
    ),
    "EC2 Xen": (
        {"sys_vendor": "Xen", "product_name": "HVM domU", "bios_version": "4.11.amazon"},
        Instance("aws"),
    ),
    "Azure": (
        {
            "sys_vendor": "Microsoft Corporation",
            "product_name": "Virtual Machine",
            "chassis_asset_tag": AZURE_TAG,
        },
        Instance("azure"),
    ),
    "Hyper-V of one's own": (
        {"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine"},
        None,
    ),
    "Google": ({"sys_vendor": "Google", "product_name": "Google Compute Engine"}, Instance("gcp")),
    "Oracle": (
        {
            "sys_vendor": "QEMU",
            "product_name": "Standard PC",
            "chassis_asset_tag": "OracleCloud.com",
        },
        Instance("oci"),
    ),
    "Oracle's VirtualBox": ({"sys_vendor": "innotek GmbH", "product_name": "VirtualBox"}, None),
    "DigitalOcean": (
        {"sys_vendor": "DigitalOcean", "product_name": "Droplet"},
        Instance("digitalocean"),
    ),
    "Dell server": ({"sys_vendor": "Dell Inc.", "product_name": "PowerEdge XE9680"}, None),
    "DGX": ({"sys_vendor": "NVIDIA", "product_name": "DGXH100"}, None),
    "EC2 of an older Nitro image": (
        {"sys_vendor": "", "product_name": "g4dn.xlarge", "bios_vendor": "Amazon EC2"},
        Instance("aws", "g4dn.xlarge"),
    ),
    "EC2 in a virtual machine on bare metal": (
        {"sys_vendor": "QEMU", "product_name": "Standard PC (Q35 + ICH9, 2009)"},
        None,
    ),
    "Azure, Generation 2": (
        {
            "sys_vendor": "Microsoft Corporation",
            "product_name": "Virtual Machine",
            "bios_version": "Hyper-V UEFI Release v4.1",
            "chassis_asset_tag": f" {AZURE_TAG} ",
        },
        Instance("azure"),
    ),
    "Oracle bare metal": (
        {
            "sys_vendor": "Oracle Corporation",
            "product_name": "ORACLE SERVER E4-2c",
            "chassis_asset_tag": "OracleCloud.com",
        },
        Instance("oci"),
    ),
    "Oracle server of one's own": (
        {"sys_vendor": "Oracle Corporation", "product_name": "ORACLE SERVER X9-2"},
        None,
    ),
    "OpenStack": ({"sys_vendor": "OpenStack Foundation", "product_name": "OpenStack Nova"}, None),
    "Alibaba Cloud": ({"sys_vendor": "Alibaba Cloud", "product_name": "Alibaba Cloud ECS"}, None),
    "text behind the type": (
        {"sys_vendor": "Amazon EC2", "product_name": "p5.48xlarge; reboot"},
        Instance("aws"),
    ),
    "Xen of one's own": (
        {"sys_vendor": "Xen", "product_name": "HVM domU", "bios_version": "4.17.3"},
        None,
    ),
    "garbage": ({"sys_vendor": "Amazon EC2", "product_name": "\x1b[2J"}, Instance("aws")),
    "no DMI": ({}, None),
}


def test_cloud_and_type_follow_from_dmi(tmp_path):
    found = {}
    for number, (name, (files, _)) in enumerate(TREES.items()):
        root = tmp_path / str(number)
        folder = root / "sys/class/dmi/id"
        folder.mkdir(parents=True)
        for file, text in files.items():
            (folder / file).write_text(f"{text}\n")
        found[name] = cloud_of(read_dmi(root))
    assert found == {name: instance for name, (_, instance) in TREES.items()}


def test_xen_instance_is_recognized_by_its_hypervisor_uuid(tmp_path):
    (tmp_path / "sys/class/dmi/id").mkdir(parents=True)
    (tmp_path / "sys/hypervisor").mkdir()
    (tmp_path / "sys/class/dmi/id/sys_vendor").write_text("Xen\n")
    (tmp_path / "sys/hypervisor/uuid").write_text("ec2e1916-9099-7caf-fd21-012345abcdef\n")
    assert cloud_of(read_dmi(tmp_path)) == Instance("aws")
