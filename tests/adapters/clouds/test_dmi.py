"""The cloud and instance type by DMI tables, recorded on instances and on other machines."""

from costprobe.adapters.clouds.instance import cloud_of, read_dmi
from costprobe.core.records import Instance

AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"
MICROSOFT, ORACLE = "Microsoft Corporation", "Oracle Corporation"
ORACLE_CLOUD = {"chassis_asset_tag": "OracleCloud.com"}
# sys_vendor and product_name below sys/class/dmi/id, other files there, and the cloud and type.
TREES = {
    "EC2 Nitro": ("Amazon EC2", "p5.48xlarge", {}, ("aws", "p5.48xlarge")),
    "EC2 bare metal": ("Amazon EC2", "g4dn.metal", {}, ("aws", "g4dn.metal")),
    "EC2 with a hyphen": ("Amazon EC2", "p6-b200.48xlarge", {}, ("aws", "p6-b200.48xlarge")),
    "older EC2": ("", "g4dn.xlarge", {"bios_vendor": "Amazon EC2"}, ("aws", "g4dn.xlarge")),
    "EC2 in a virtual machine on bare metal": ("QEMU", "Standard PC (Q35 + ICH9, 2009)", {}, None),
    "EC2 Xen": ("Xen", "HVM domU", {"bios_version": "4.11.amazon"}, ("aws",)),
    "Xen of one's own": ("Xen", "HVM domU", {"bios_version": "4.17.3"}, None),
    "Azure": (MICROSOFT, "Virtual Machine", {"chassis_asset_tag": f" {AZURE_TAG} "}, ("azure",)),
    "Hyper-V of one's own": (MICROSOFT, "Virtual Machine", {}, None),
    "Google": ("Google", "Google Compute Engine", {}, ("gcp",)),
    "Oracle": ("QEMU", "Standard PC", ORACLE_CLOUD, ("oci",)),
    "Oracle bare metal": (ORACLE, "ORACLE SERVER E4-2c", ORACLE_CLOUD, ("oci",)),
    "Oracle server of one's own": (ORACLE, "ORACLE SERVER X9-2", {}, None),
    "Oracle's VirtualBox": ("innotek GmbH", "VirtualBox", {}, None),
    "DigitalOcean": ("DigitalOcean", "Droplet", {}, ("digitalocean",)),
    "Dell server": ("Dell Inc.", "PowerEdge XE9680", {}, None),
    "DGX": ("NVIDIA", "DGXH100", {}, None),
    "OpenStack": ("OpenStack Foundation", "OpenStack Nova", {}, None),
    "Alibaba Cloud": ("Alibaba Cloud", "Alibaba Cloud ECS", {}, None),
    "text behind the type": ("Amazon EC2", "p5.48xlarge; reboot", {}, ("aws",)),
    "garbage": ("Amazon EC2", "\x1b[2J", {}, ("aws",)),
}


def test_cloud_and_type_follow_from_dmi(tmp_path):
    found = {"no DMI": cloud_of(read_dmi(tmp_path))}
    for name, (vendor, product, more, _) in TREES.items():
        folder = tmp_path / name / "sys/class/dmi/id"
        folder.mkdir(parents=True)
        for file, text in {"sys_vendor": vendor, "product_name": product, **more}.items():
            (folder / file).write_text(f"{text}\n")
        found[name] = cloud_of(read_dmi(tmp_path / name))
    expected = {name: cloud and Instance(*cloud) for name, (*_, cloud) in TREES.items()}
    assert found == expected | {"no DMI": None}


def test_xen_instance_is_recognized_by_its_hypervisor_uuid(tmp_path):
    (tmp_path / "sys/class/dmi/id").mkdir(parents=True)
    (tmp_path / "sys/hypervisor").mkdir()
    (tmp_path / "sys/class/dmi/id/sys_vendor").write_text("Xen\n")
    (tmp_path / "sys/hypervisor/uuid").write_text("ec2e1916-9099-7caf-fd21-012345abcdef\n")
    assert cloud_of(read_dmi(tmp_path)) == Instance("aws")
