"""The Python interface: verbs and recipes on top of the language."""
