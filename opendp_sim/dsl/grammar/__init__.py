"""The grammar: every section of a spec, declared once (see ``section.py``)."""
