"""Private answers to one question: how similar is this query to a private dataset?"""

__version__ = "0.1.0"
