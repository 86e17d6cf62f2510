"""Row maps, one a file, row-local bit for bit."""
