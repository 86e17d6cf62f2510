"""Explain mechanisms, errors, words and symbols."""
