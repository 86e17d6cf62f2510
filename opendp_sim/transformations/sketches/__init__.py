"""Sketches: sums of one bounded integer vector a record."""
