"""Define privacy measures, conversions, and bounds on attackers."""
