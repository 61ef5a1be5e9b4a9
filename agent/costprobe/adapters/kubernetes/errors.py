"""Failures of the Kubernetes APIs."""


class KubernetesError(Exception):
    """The kubelet or the API server did not answer, or not as documented; the text has the fix."""
