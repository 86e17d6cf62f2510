"""Bet, count and test."""
