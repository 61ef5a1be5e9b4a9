"""The load child: sends the requests of a probe to an inference server, and measures them."""
