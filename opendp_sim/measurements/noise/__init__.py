"""Noise added to a sketch, and the exact samplers behind it."""
