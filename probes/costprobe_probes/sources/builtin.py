"""The built-in models, by their names."""

from __future__ import annotations

from costprobe_probes.models import KINDS
from costprobe_probes.sources.model_source import SourcedModel
from costprobe_probes.spec import Spec


def load_builtin(spec: Spec) -> SourcedModel:
    """Build a built-in model with seeded weights."""
    module, inputs = KINDS[spec.kind]()
    return SourcedModel(module, inputs)
