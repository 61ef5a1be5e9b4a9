"""The command line; each command's module is loaded only when it is called."""
