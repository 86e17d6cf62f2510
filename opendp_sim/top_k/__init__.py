"""Family: private selection of the most frequent items."""
