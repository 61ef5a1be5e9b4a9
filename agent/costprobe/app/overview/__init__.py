"""What an inference costs now, whether and why that changes, and where the money goes."""
