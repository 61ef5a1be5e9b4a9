"""Which container and pod a process of this node belongs to, by its file /proc/PID/cgroup.

Sources of the paths: kubernetes/kubernetes, pkg/kubelet/cm/pod_container_manager_linux.go and
cgroup_manager_linux.go (`kubepods/burstable/pod<uid>`, with systemd
`kubepods-burstable-pod<uid, with _>.slice`); below it the container's id, alone with the driver
cgroupfs, otherwise after the runtime's name: `cri-containerd-<id>.scope`, `docker-<id>.scope`,
`crio-<id>.scope` (cri-o/cri-o, internal/config/cgmgr/cgmgr_linux.go). NVIDIA/dcgm-exporter 4.5.3
joins processes with pods in the same way (internal/pkg/transformation/pidmapper.go).
"""

from __future__ import annotations

import re
from typing import Final

_CONTAINER: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_POD: Final = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")


def cgroup_ids(text: str) -> tuple[str, ...]:
    """Return the ids of containers in a file /proc/PID/cgroup, the outermost first, then pods' UIDs.

    Paths may be those of cgroup v1 or v2, and relative to the reader's own cgroup namespace.
    """
    pods = (uid.replace("_", "-") for uid in _POD.findall(text))
    return tuple(dict.fromkeys([*_CONTAINER.findall(text), *pods]))
