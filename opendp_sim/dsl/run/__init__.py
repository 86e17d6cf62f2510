"""Run a plan.

Reserve, compute, write, charge, publish.
"""
