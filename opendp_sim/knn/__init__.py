"""Family: private nearest-neighbour prediction."""
