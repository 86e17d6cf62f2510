"""Run interactive releases whose store outlives the process."""
