"""Private selection of the most frequent items."""
