"""Provide verbs and recipes in Python.

On top of the language.
"""
