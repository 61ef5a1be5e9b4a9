"""The manifest is valid for Kubernetes, grants least privilege and matches its documentation."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from costprobe.adapters.kubernetes.api_server import SOCKET
from costprobe.configuration import parse
from costprobe.ui.cli.support.service_venv import CPU_BUILD
from docs_pages import DOCS
from fakes.daemon import DaemonProcess
from fakes.servers import free_port

HOWTO = DOCS / "howto"
KUSTOMIZE = HOWTO / "kustomize"


def by_kind(text):
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def built(variant):
    """Return the objects of a variant by kind."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    command = [kubectl, "kustomize", str(KUSTOMIZE / variant)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stderr == ""  # nor a warning of a deprecated field
    return by_kind(done.stdout)


DOCUMENTS = by_kind((KUSTOMIZE / "base" / "costprobe-daemonset.yaml").read_text())
POD = DOCUMENTS["DaemonSet"]["spec"]["template"]["spec"]
(MAIN,) = POD["containers"]
(PREPARE,) = POD["initContainers"]
CONTAINERS = pytest.mark.parametrize("container", [MAIN, PREPARE], ids=lambda c: c["name"])
CAPABILITIES = ("CHOWN", "DAC_READ_SEARCH")
# The oldest maintained version and the newest with published schemas.
VERSIONS = ("1.31", kubernetes_validate.latest_version())


@pytest.mark.parametrize("variant", ["base", "pods"])
def test_variants_are_valid_for_kubernetes(variant):
    for kind, document in built(variant).items():
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                pytest.fail(f"{kind} for {version}: {error}")


def test_base_is_the_manifest():
    assert built("base") == DOCUMENTS


def test_pods_variant_adds_the_kubelets_socket_two_lists_and_nothing_else():
    found = built("pods")
    assert found["ClusterRole"]["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"], "verbs": ["list"]},
    ]
    spec = found["DaemonSet"]["spec"]["template"]["spec"]
    (main,) = spec["containers"]
    assert main["securityContext"] == {
        **MAIN["securityContext"],
        "runAsNonRoot": False,
        "runAsUser": 0,
        "runAsGroup": 0,
    }
    paths = {volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    assert paths == {"/var/lib/costprobe", SOCKET.parent.as_posix()}
    mounts = {mount["name"]: mount for mount in main["volumeMounts"]}
    new = set(mounts) - {mount["name"] for mount in MAIN["volumeMounts"]}
    assert {name: mounts[name]["readOnly"] for name in new} == {
        "pod-resources": True,
        "api-server": True,
    }
    (prepare,) = spec["initContainers"]
    assert prepare["volumeMounts"] == PREPARE["volumeMounts"]
    text = "".join(found["ConfigMap"]["data"][name] for name in sorted(found["ConfigMap"]["data"]))
    config = parse(text, Path("costprobe.toml")).kubernetes
    assert config.token.path.parent.as_posix() == mounts["api-server"]["mountPath"]
    assert config.socket == SOCKET
    readme = (KUSTOMIZE / "README.md").read_text()
    assert all(
        f"`{word}`" in readme
        for word in ("list", "pods", "resourceslices", "hostPID", *CAPABILITIES)
    )


def test_schemas_detect_errors():
    wrong = json.loads(json.dumps(DOCUMENTS["DaemonSet"]))
    wrong["spec"]["template"]["spec"]["containers"][0]["imagee"] = "x"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


@CONTAINERS
def test_containers_have_no_extra_privileges_or_writable_paths(container):
    context = container["securityContext"]
    assert context["readOnlyRootFilesystem"] is True
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"]["drop"] == ["ALL"]
    assert "privileged" not in context
    assert container["resources"]["limits"].keys() >= {"memory", "ephemeral-storage"}
    assert container["resources"]["requests"].keys() >= {"memory", "cpu"}
    # A CPU quota would be measured as latency; the pod requests no devices.
    assert not {"cpu", "nvidia.com/gpu"} & container["resources"]["limits"].keys()


def test_daemon_is_unprivileged_and_root_may_only_hand_over_a_folder():
    assert MAIN["securityContext"]["runAsNonRoot"] is True
    assert MAIN["securityContext"]["runAsUser"] >= 10_000
    assert "add" not in MAIN["securityContext"]["capabilities"]
    assert PREPARE["securityContext"]["capabilities"]["add"] == [*CAPABILITIES]


def test_pod_shares_only_required_namespaces_and_paths_with_the_node():
    assert POD["hostPID"] is True
    # The stricter Pod Security Standards reject hostPID, so the namespace declares its level.
    labels = DOCUMENTS["Namespace"]["metadata"]["labels"]
    assert labels == {"pod-security.kubernetes.io/enforce": "privileged"}
    assert not POD.get("hostNetwork")
    assert not POD.get("hostIPC")
    assert POD["automountServiceAccountToken"] is False
    assert DOCUMENTS["ServiceAccount"]["automountServiceAccountToken"] is False
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not any("hostPort" in port for c in (MAIN, PREPARE) for port in c.get("ports", ()))
    paths = [volume["hostPath"]["path"] for volume in POD["volumes"] if "hostPath" in volume]
    assert paths == ["/var/lib/costprobe"]


def test_secrets_are_files_and_the_store_is_on_the_node():
    for container in (MAIN, PREPARE):
        assert "envFrom" not in container
        sources = [one.get("valueFrom", {}) for one in container["env"]]
        assert not any("secretKeyRef" in source for source in sources)
    mounts = {mount["name"]: mount for mount in MAIN["volumeMounts"]}
    assert mounts["secrets"]["readOnly"] is True
    assert mounts["configuration"]["readOnly"] is True
    (secret,) = (volume["secret"] for volume in POD["volumes"] if "secret" in volume)
    # YAML 1.1 reads 0440 as octal, as Kubernetes does: the owner and the group may read.
    assert secret["defaultMode"] == 0o440
    config = configuration("node-1")
    assert str(config.sink[0].token.path.parent) == mounts["secrets"]["mountPath"]
    assert config.store.path.is_relative_to(mounts["store"]["mountPath"])


def configuration(node):
    text = DOCUMENTS["ConfigMap"]["data"]["costprobe.toml"].replace("NODE_NAME", node)
    return parse(text, Path("costprobe.toml"))


def test_every_mount_has_a_volume():
    there = {volume["name"] for volume in POD["volumes"]}
    for container in (MAIN, PREPARE):
        assert {mount["name"] for mount in container["volumeMounts"]} <= there
    named = {source["name"]: source for source in MAIN["env"]}
    assert named["COSTPROBE_CONFIG"]["value"] == "/etc/costprobe/costprobe.toml"
    assert POD["serviceAccountName"] == DOCUMENTS["ServiceAccount"]["metadata"]["name"]
    spec = DOCUMENTS["DaemonSet"]["spec"]
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]


@pytest.mark.skipif(os.geteuid() != 0, reason="root is required to own files of another user")
def test_each_variant_takes_over_the_store_of_the_other(tmp_path):
    def as_user(owner, capabilities, *command, **variables):
        user, group = owner.split(":")
        bounding = ",".join(["-all", *(f"+{name.lower()}" for name in capabilities)])
        subprocess.run(
            ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups",
             f"--bounding-set={bounding}", "--inh-caps=-all", "sh", "-euc", *command],
            env={**os.environ, **variables},
            check=True,
        )  # fmt: skip

    # pytest's folders are closed to other users.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        folder = Path(name) / "costprobe"
        folder.mkdir()
        (tmp_path / "costprobe.toml").touch()
        script = PREPARE["command"][2].replace("/var/lib/costprobe", str(folder))
        script = script.replace("/config", str(tmp_path)).replace("/etc/costprobe", str(tmp_path))
        daemon = (
            "umask 077; cd $1; mkdir -p store; echo row >>store/db; grep -c . store/db >store/count"
        )
        spec = built("pods")["DaemonSet"]["spec"]["template"]["spec"]["initContainers"][0]
        owners = [
            next(one["value"] for one in container["env"] if one["name"] == "STORE_OWNER")
            for container in (PREPARE, spec)
        ]
        assert owners == ["10001:10001", "0:0"]
        for owner in (*owners, *owners):
            as_user("0:0", CAPABILITIES, script, STORE_OWNER=owner, NODE_NAME="n")
            as_user(owner, (), daemon, "sh", folder)
        assert (folder / "store/count").read_text() == "4\n"


def test_init_script_writes_a_configuration_with_the_node_name(tmp_path):
    folders = {"/var/lib/costprobe": "store", "/config": "template", "/etc/costprobe": "made"}
    shell, options, script = PREPARE["command"]
    for path, name in folders.items():
        (tmp_path / name).mkdir()
        assert path in script
        script = script.replace(path, str(tmp_path / name))
    template = DOCUMENTS["ConfigMap"]["data"]["costprobe.toml"]
    (tmp_path / "template" / "costprobe.toml").write_text(template)
    subprocess.run(
        [shell, options, script],
        env={
            **os.environ,
            "NODE_NAME": "gpu-node-7",
            "STORE_OWNER": f"{os.getuid()}:{os.getgid()}",
        },
        check=True,
    )
    made = (tmp_path / "made" / "costprobe.toml").read_text()
    assert parse(made, Path("costprobe.toml")).host.name == "gpu-node-7"


def test_liveness_probe_checks_the_daemon_and_not_its_database(tmp_path):
    port = free_port()
    daemon = DaemonProcess(tmp_path, {})
    program, *arguments = MAIN["livenessProbe"]["exec"]["command"]
    assert program == "python"
    assert configuration("n").http.listen == "127.0.0.1:9101"
    command = [sys.executable, *(a.replace("9101", str(port)) for a in arguments)]
    assert subprocess.run(command, check=False, capture_output=True).returncode != 0
    daemon.start(
        f'[http]\nlisten = "127.0.0.1:{port}"\n[telemetry]\ngpus = false\n'
        f'[[sink]]\napi = "v2"\nbucket = "b"\nurl = "http://127.0.0.1:{free_port()}"\n'
    )
    try:
        daemon.wait_for(lambda: subprocess.run(command, check=False).returncode == 0)
    finally:
        daemon.stop()


def test_image_is_built_from_the_wheel_by_hashes():
    lines = (HOWTO / "Containerfile").read_text().replace("\\\n", " ").splitlines()
    (copied,) = [line.split()[1:-1] for line in lines if line.startswith("COPY ")]
    assert copied == ["costprobe-*-py3-none-any.whl"]
    assert f"ARG TORCH={CPU_BUILD.partition('+')[0]}" in lines
    installs = " ".join(line for line in lines if line.startswith("RUN "))
    lock = "/usr/local/share/costprobe/requirements.txt"
    assert f"--require-hashes --requirement {lock}" in installs
    assert "USER 10001:10001" in lines
    assert MAIN["securityContext"]["runAsUser"] == 10_001
    assert MAIN["image"] == PREPARE["image"]
    assert MAIN["args"] == ["run"]
    assert 'ENTRYPOINT ["costprobe"]' in lines
