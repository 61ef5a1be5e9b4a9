"""The child that loads a server with requests, and times its answers."""
