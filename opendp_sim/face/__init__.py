"""What a Python user calls: verbs and recipes on top of the language."""
