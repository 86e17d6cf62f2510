"""Define claims, mechanisms, errors, exact arithmetic and the bridge."""
