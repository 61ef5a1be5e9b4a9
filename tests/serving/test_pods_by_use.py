"""A GPU that pods share, on a manual clock: its cost by the use of each, while pods come and go."""

import pytest
from costprobe.core.records import Device
from fakes.inference_server import InferenceServer
from fakes.kubelet import Kubelet, pod
from fakes.serving_bench import ServingBench

UUID = "GPU-00000000-0000-4000-8000-000000000000"
GPU = Device("gpu0", "gpu", UUID, "NVIDIA H100 80GB HBM3")
PRICE = '[[price]]\nplan = "on_demand"\nper_hour = 3.6\n'


def container_id(name):
    return name.encode().hex().rjust(64, "0")


def uid_of(name):
    return f"{name.encode().hex().rjust(8, '0')[-8:]}-0000-4000-8000-000000000000"


class Node(ServingBench):
    """A GPU in four replicas, 0.001 a second, and the processes, kubelet and API server of its node."""

    def __init__(self, folder, kubelet, api, pods):
        self.kubelet, self.pods, self.worked_s = kubelet, pods, 0
        kubelet.allocatable = [f"{UUID}::{n}" for n in range(4)]
        cluster = f'[kubernetes]\nsocket = "{kubelet.socket}"\napi_url = "{api.url}"\n'
        super().__init__(folder, cluster, price=PRICE, devices=[GPU])

    def has(self, name, **replicas):
        """Add a pod by the replicas of its containers; each runs under an id of its own."""
        ids = {name: [f"{UUID}::{n}" for n in held] for name, held in replicas.items()}
        self.kubelet.pods.append(pod("prod", name, **ids))
        self.pods[name] = {
            "metadata": {"namespace": "prod", "name": name, "uid": uid_of(name)},
            "spec": {"containers": [{"name": each} for each in replicas]},
        }
        for each in replicas:
            self.runs_as(name, each, f"{name}/{each}")

    def has_by_hami(self, name, cores):
        """Add a pod to which HAMi gave the GPU, with a limit of the cores in percent."""
        self.has(name, main=[])
        self.kubelet.pods[-1] = pod("prod", name, main=[f"{UUID}-7"])
        annotation = {"hami.io/vgpu-devices-allocated": f"{UUID},NVIDIA,8000,{cores}:;"}
        self.pods[name]["metadata"]["annotations"] = annotation

    def runs_as(self, name, container, its_id):
        """Let the API server name the runtime's id of a container."""
        statuses = self.pods[name].setdefault("status", {}).setdefault("containerStatuses", [])
        statuses[:] = [each for each in statuses if each["name"] != container]
        statuses.append({"name": container, "containerID": f"containerd://{container_id(its_id)}"})

    def loses(self, name):
        self.kubelet.pods = [each for each in self.kubelet.pods if each.name != name]
        del self.pods[name]

    def starts(self, pid, name, its_id, *, comm="python3", started=1):
        """Start a process in a container; without the name of a pod, in none."""
        folder = self.proc / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        uid = uid_of(name).replace("-", "_")
        slices = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable"
        path = f"{slices}-pod{uid}.slice/cri-containerd-{container_id(its_id)}.scope"
        (folder / "comm").write_text(f"{comm}\n")
        (folder / "stat").write_text(f"{pid} (a) b) S " + " ".join(["7"] * 18) + f" {started} 0\n")
        (folder / "cgroup").write_text(f"0::/{path if name else 'user.slice'}\n")

    def ends(self, pid):
        for file in (self.proc / str(pid)).iterdir():
            file.unlink()

    def reads_pods(self):
        self.jobs["pods"]()

    def works(self, duration_s, *, device_pct, by_pid_pct):
        """Let processes use the GPU; None for a driver that does not tell their shares."""
        self.util_pct, self.by_pid_pct = device_pct, by_pid_pct
        self.worked_s += duration_s
        self.move(duration_s)

    def allocated(self):
        """Return the cost of the time so far by service, part and basis, in thousandths."""
        self.serving.stop()
        found = {}
        for row in self.rows("allocation"):
            service = row.tags.get("service", "").removeprefix("prod:")
            place = service, row.tags["part"], row.fields.get("basis", "")
            found[place] = found.get(place, 0.0) + 1000 * row.fields["cost"]
        assert sum(found.values()) == pytest.approx(self.worked_s)
        return {place: pytest.approx(cost, abs=1e-9) for place, cost in found.items() if cost}


@pytest.fixture
def node(tmp_path):
    pods = {}
    api = InferenceServer(lambda call: call.json({"items": list(pods.values())}))
    with Kubelet(tmp_path / "kubelet.sock") as kubelet, api:
        node = Node(tmp_path, kubelet, api, pods)
        yield node
        node.store.close()


def test_busy_time_is_divided_by_use_and_idle_time_by_replicas(node):
    node.has("chat", vllm=[0, 1])
    node.has("train", main=[2])
    node.reads_pods()
    node.starts(11, "chat", "chat/vllm")
    node.starts(12, "chat", "another container that holds no device")
    node.starts(21, "train", "train/main")
    node.starts(99, "", "")
    node.works(300, device_pct=80, by_pid_pct={11: 40, 12: 10, 21: 10, 99: 20})
    assert node.allocated() == {
        ("chat:vllm", "busy", "use"): 240 * 50 / 80,
        ("chat:vllm", "idle", "use"): 60 * 2 / 4,
        ("train:main", "busy", "use"): 240 * 10 / 80,
        ("train:main", "idle", "use"): 60 * 1 / 4,
        ("", "unallocated", ""): 240 * 20 / 80 + 60 * 1 / 4,
    }


@pytest.mark.parametrize(
    ("by_pid_pct", "case"),
    [
        (None, "the driver does not tell"),
        ({}, "nothing was busy"),
        ({31: 60, 11: 5}, "time of clients of MPS"),
        ({99: 60}, "no process of a pod"),
        ({11: 60}, "no API server"),
    ],
)
def test_where_use_is_unknown_the_cost_is_divided_by_replicas(node, by_pid_pct, case):
    node.has("chat", vllm=[0, 1])
    node.has("train", main=[2])
    if case == "no API server":
        node.pods.clear()
    node.reads_pods()
    node.starts(11, "chat", "chat/vllm")
    node.starts(31, "", "", comm="nvidia-cuda-mps")
    node.starts(99, "", "")
    node.works(300, device_pct=60, by_pid_pct=by_pid_pct)
    assert node.allocated() == {
        (service, part, basis): cost * share
        for service, basis, share in (
            ("chat:vllm", "replicas", 0.5),
            ("train:main", "replicas", 0.25),
        )
        for part, cost in (("busy", 180), ("idle", 120))
    } | {("", "unallocated", ""): 75}


@pytest.mark.parametrize("is_told", [True, False])
def test_pods_of_hami_are_divided_by_use_or_by_cores(node, is_told):
    node.kubelet.allocatable = [f"{UUID}-{n}" for n in range(10)]
    node.has_by_hami("chat", 50)
    node.has_by_hami("train", 0)  # without a limit, by its replica
    node.reads_pods()
    node.starts(11, "chat", "chat/main")
    node.starts(21, "train", "train/main")
    node.works(100, device_pct=60, by_pid_pct={11: 15, 21: 45} if is_told else None)
    used = {"chat": 15, "train": 45} if is_told else {"chat": 30, "train": 6}
    bases = ("use", "use") if is_told else ("cores", "replicas")
    assert node.allocated() == {
        ("chat:main", "busy", bases[0]): used["chat"],
        ("chat:main", "idle", bases[0]): 40 * 0.5,
        ("train:main", "busy", bases[1]): used["train"],
        ("train:main", "idle", bases[1]): 40 * 0.1,
        ("", "unallocated", ""): 100 - sum(used.values()) - 40 * 0.6,
    }


def test_pods_that_come_and_go_bear_what_they_used(node):
    node.has("a", m=[0])
    node.has("b", m=[1])
    node.reads_pods()
    node.starts(1, "a", "a/m")
    node.starts(2, "b", "b/m")
    node.works(60, device_pct=100, by_pid_pct={1: 75, 2: 25})
    # The pod ends between two readings of the pods, its process between two of the GPU; another
    # pod's process gets its number within the same window.
    node.works(30, device_pct=100, by_pid_pct={1: 50, 2: 50})
    node.ends(1)
    node.starts(1, "b", "b/m", started=2)
    node.works(10, device_pct=100, by_pid_pct={1: 100})
    node.loses("a")
    node.reads_pods()
    # Its container restarts under another id, which the API server names later.
    node.ends(2)
    node.starts(3, "b", "b/m again", started=3)
    node.works(40, device_pct=100, by_pid_pct={3: 100})
    node.runs_as("b", "m", "b/m again")
    # The kubelet is silent for less than a window, while the container works on.
    node.kubelet.stop()
    node.reads_pods()
    node.works(60, device_pct=50, by_pid_pct={3: 50})
    node.kubelet.start()
    node.reads_pods()
    assert node.allocated() == {
        ("a:m", "busy", "use"): 45 + 15,
        ("b:m", "busy", "use"): 15 + 15 + 10 + 40 + 30,
        ("b:m", "idle", "use"): 30 / 4,
        ("", "unallocated", ""): 30 * 3 / 4,
    }


def test_pods_beside_an_ended_one_that_is_still_busy_were_idle(node):
    node.has("a", m=[0, 1])
    node.has("b", m=[2, 3])
    node.reads_pods()
    node.starts(1, "a", "a/m")
    node.works(50, device_pct=80, by_pid_pct={1: 80})
    node.loses("a")
    node.reads_pods()
    node.works(50, device_pct=80, by_pid_pct={1: 80})
    assert node.allocated() == {
        ("a:m", "busy", "use"): 40,
        ("a:m", "idle", "use"): 5,
        ("b:m", "idle", "use"): 10,
        ("", "unallocated", ""): 45,
    }
