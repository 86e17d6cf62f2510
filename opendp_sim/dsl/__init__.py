"""The language: spec to typed plan to OpenDP."""
