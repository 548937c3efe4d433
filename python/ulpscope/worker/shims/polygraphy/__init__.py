"""Polygraphy's Python module as far as scripts that ulpscope runs need it, on top of ulpscope's ``tensorrt``."""

__version__ = "0.53.6"
__ulpscope__ = True
