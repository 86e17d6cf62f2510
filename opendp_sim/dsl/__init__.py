"""The language: a spec, or a Python program, to a typed plan, to OpenDP, to released answers."""
