"""Provide verbs and recipes in Python on top of the language."""
