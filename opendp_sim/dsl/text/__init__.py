"""Read YAML with places; report findings."""
