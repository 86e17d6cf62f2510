"""Sum one bounded integer vector a record."""
