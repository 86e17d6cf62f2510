"""Privacy measures: Gaussian DP, conversions, attackers."""
