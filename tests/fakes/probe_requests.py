"""Requests to a probe worker."""

from dataclasses import replace

from costprobe.core.records import Device
from costprobe.probing.run import model_request
from costprobe.probing.settings import ProbeConfig

CPU = Device("cpu", "cpu", "cpu", "Processor", None)


def probe_request(kind="cnn", *, energy=False, **changes):
    """A request for a run on the CPU, with changes of what the worker reads."""
    request = model_request(ProbeConfig(name="p"), CPU, {}, energy=energy)
    return replace(request, document={**request.document, "kind": kind, **changes})
