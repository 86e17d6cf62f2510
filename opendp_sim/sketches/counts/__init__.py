"""Sketches that count votes."""
