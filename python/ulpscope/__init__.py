"""Finds the layers of a neural network that need more precision."""

from .errors import Error, ErrorCode, InternalError

__all__ = ["Error", "ErrorCode", "InternalError"]
