"""Sum records in parts on threads, Dask or Spark (``engines.md``)."""
