"""Where figures that move come from: files, commands and HTTP endpoints, each read within bounds."""
