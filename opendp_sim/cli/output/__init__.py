"""Print plans, trees and comparisons."""
