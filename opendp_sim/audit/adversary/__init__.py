"""Query interactive releases."""
