"""The fleet: which GPUs deviate from their peers, and what a change of software did."""
