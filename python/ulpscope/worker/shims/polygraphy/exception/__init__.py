"""Exceptions of the module."""


class PolygraphyException(Exception):
    """What a user can cause and fix."""


class PolygraphyInternalException(PolygraphyException):
    """What a user cannot cause."""


class DataTypeConversionException(PolygraphyException):
    """No such type there."""
