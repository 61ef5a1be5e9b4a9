"""Tables, plots and lines of the command line."""
