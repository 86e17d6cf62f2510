"""Run a plan by reserving, computing, writing, charging and publishing."""
