"""Transformations: row maps, and sketches that sum one bounded vector a record."""
