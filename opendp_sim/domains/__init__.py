"""Domains and metrics that OpenDP lacks."""
