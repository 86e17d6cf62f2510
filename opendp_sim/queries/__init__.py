"""Mechanism room: post-processing of a release, one a file."""
