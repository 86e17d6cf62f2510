"""Measurements: noise, selection, nearest neighbours, linear models."""
