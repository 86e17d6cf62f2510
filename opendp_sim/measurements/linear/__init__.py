"""Linear models by noisy gradients: one release that answers any number of queries."""
