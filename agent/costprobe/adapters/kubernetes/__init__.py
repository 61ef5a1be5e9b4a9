"""Kubernetes: the containers that hold a device of this node, and the metrics ports of their pods."""
