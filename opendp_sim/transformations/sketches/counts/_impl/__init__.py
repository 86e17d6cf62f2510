"""Provide helpers of the mechanisms in the folder above.

The catalogue does not look here.
"""
