"""Vocabulary shared by every room: claims, mechanisms, errors, exact arithmetic, the bridge."""
