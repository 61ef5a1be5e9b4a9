"""Kubernetes: containers that hold a device of this node, and their pods at the API server."""
