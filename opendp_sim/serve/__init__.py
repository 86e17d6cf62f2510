"""Serve a folder's releases and sessions over HTTP."""
