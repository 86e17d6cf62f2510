"""Record, replace and replay noise."""
