"""Mechanism room: noise, and mechanisms that are more than noise."""
