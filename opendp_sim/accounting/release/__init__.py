"""Save answers, and the queries that they take."""
