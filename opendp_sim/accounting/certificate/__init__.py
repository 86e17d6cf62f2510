"""Certificates and their signatures."""
