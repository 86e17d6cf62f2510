"""Releases: saved answers and the queries they take."""
