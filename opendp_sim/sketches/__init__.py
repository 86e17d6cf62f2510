"""Mechanism room: sums of one bounded integer feature vector per record."""
