"""The conformance kit, shipped for third parties."""
