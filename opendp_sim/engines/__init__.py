"""Engines: one sum over records, in parts, on threads, Dask or Spark; the same bits. ``engines.md``."""
