"""The catalogue of list prices of cloud instances, and of purchase prices of GPUs."""
