"""Loaders per framework."""
