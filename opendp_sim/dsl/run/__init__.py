"""Run a plan: reserve, compute, write, charge, publish."""
