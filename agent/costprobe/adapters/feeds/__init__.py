"""Sources of prices and carbon intensities: files, commands and HTTP endpoints."""
