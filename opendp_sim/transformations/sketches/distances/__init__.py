"""Sketches that answer sums of distances."""
