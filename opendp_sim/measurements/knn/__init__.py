"""Private nearest-neighbour prediction."""
