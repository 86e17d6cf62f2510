"""What several queries share."""
