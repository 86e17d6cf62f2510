"""Release linear models by noisy gradients, for any number of queries."""
