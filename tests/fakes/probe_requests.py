"""Requests to a probe worker."""

from dataclasses import replace

from costprobe.adapters.probing.model_settings import ProbeConfig
from costprobe.adapters.probing.request import model_request
from costprobe.core.records import Device

CPU = Device("cpu", "cpu", "cpu", "Processor", None)


def probe_request(kind="cnn", *, energy=False, **changes):
    """A request for a run on the CPU, with changes of what the worker reads."""
    request = model_request(ProbeConfig(name="p"), CPU, {}, energy=energy)
    return replace(request, document={**request.document, "kind": kind, **changes})
