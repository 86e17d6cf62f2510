"""Sketches that answer regressions."""
