"""Tests of the proofs: names in pages, and extracted functions against the code."""
