"""Provide helpers of the mechanisms in the folder above."""
