"""Where spot prices come from: files, commands and HTTP endpoints, each read within bounds."""
