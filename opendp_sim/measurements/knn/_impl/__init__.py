"""Helpers of the mechanisms in the folder above; the catalogue does not look here."""
