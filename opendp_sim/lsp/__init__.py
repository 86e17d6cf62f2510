"""Serve editors with findings, hover, completion and cost."""
