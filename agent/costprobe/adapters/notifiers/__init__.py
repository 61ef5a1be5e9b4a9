"""Delivery of alerts: one queue, worker and kind of destination per notifier."""
