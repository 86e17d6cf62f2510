"""Declare every section of a spec once.

See ``section.py``.
"""
