"""Post-processing of a release, one a file."""
