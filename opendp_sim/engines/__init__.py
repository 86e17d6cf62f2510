"""Sum records in parts on threads, Dask or Spark.

The same bits everywhere; ``engines.md``.
"""
