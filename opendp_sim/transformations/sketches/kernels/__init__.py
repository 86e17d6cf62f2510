"""Sketches that answer kernel densities."""
