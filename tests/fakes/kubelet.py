"""A kubelet's PodResources API: a real gRPC server of the upstream proto, on a socket.

with Kubelet(folder / "kubelet.sock") as kubelet:
    kubelet.pods = [pod("prod", "chat-0", vllm=["GPU-0"])]
    kubelet.restart()
"""

import importlib.util
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

PROTO = Path(__file__).with_name("podresources.proto")
MIXED_CPUS = [0, 1]


@cache
def messages():
    """Return the module that protoc compiles from the proto."""
    from grpc_tools import protoc  # a test without this API does not need it

    with tempfile.TemporaryDirectory() as folder:
        failed = protoc.main(["", f"-I{PROTO.parent}", f"--python_out={folder}", str(PROTO)])
        assert not failed
        path = Path(folder) / "podresources_pb2.py"
        spec = importlib.util.spec_from_file_location("podresources_pb2", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    return module


def pod(namespace, name, *, claims=None, **containers):
    """Return a pod; each container is a list of device ids, its claims of (pool, device)."""
    made = messages()
    answer = made.PodResources(name=name, namespace=namespace, cpu_ids=MIXED_CPUS)
    for container, ids in containers.items():
        added = answer.containers.add(name=container.replace("_", "-"), cpu_ids=MIXED_CPUS)
        added.memory.add(memory_type="memory", size=1 << 30)
        for device_id in ids:
            kind = "nvidia.com/mig-1g.10gb" if device_id.startswith("MIG-") else "nvidia.com/gpu"
            device = added.devices.add(resource_name=kind, device_ids=[device_id])
            device.topology.nodes.add(ID=0)
        for pool, device in (claims or {}).get(container, ()):
            claim = added.dynamic_resources.add(claim_name="gpu", claim_namespace=namespace)
            resource = claim.claim_resources.add(
                driver_name="gpu.nvidia.com", pool_name=pool, device_name=device
            )
            resource.cdi_devices.add(name=f"k8s.gpu.nvidia.com/device={device}")
    return answer


class Kubelet:
    """The API on a socket.

    Attributes:
        pods: What it lists.
        allocatable: Ids of all devices.
        hangs: Whether it accepts calls and does not answer until it is stopped.
        calls: Number of answered lists.
    """

    def __init__(self, socket):
        self.socket = socket
        self.pods = []
        self.allocatable = []
        self.hangs = False
        self.calls = 0
        self._stopped = threading.Event()
        self._server = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        """Listen on the socket."""
        import grpc

        made = messages()
        self._stopped.clear()
        self._server = grpc.server(ThreadPoolExecutor(2))
        handlers = {
            "List": grpc.unary_unary_rpc_method_handler(
                self._list,
                request_deserializer=made.ListPodResourcesRequest.FromString,
                response_serializer=made.ListPodResourcesResponse.SerializeToString,
            ),
            "GetAllocatableResources": grpc.unary_unary_rpc_method_handler(
                lambda _, __: made.AllocatableResourcesResponse(
                    devices=[
                        made.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=[name])
                        for name in self.allocatable
                    ]
                ),
                request_deserializer=made.AllocatableResourcesRequest.FromString,
                response_serializer=made.AllocatableResourcesResponse.SerializeToString,
            ),
        }
        service = grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers)
        self._server.add_generic_rpc_handlers((service,))
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()

    def stop(self):
        """Close the socket, as a kubelet that is restarted does."""
        self._stopped.set()
        self._server.stop(None).wait()
        self.socket.unlink(missing_ok=True)

    def _list(self, _, __):
        if self.hangs:
            self._stopped.wait()
        self.calls += 1
        return messages().ListPodResourcesResponse(pod_resources=self.pods)
