"""Mine datasets from the audited code."""
