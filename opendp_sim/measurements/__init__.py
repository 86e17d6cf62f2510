"""Release private data by noise, selection, neighbours or linear models."""
