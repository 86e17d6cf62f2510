"""Check structure, stability, noise and distribution."""
