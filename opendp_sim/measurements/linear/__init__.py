"""Release linear models by noisy gradients.

One release answers any number of queries.
"""
