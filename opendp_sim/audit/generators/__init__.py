"""Generate neighbouring datasets of a domain."""
