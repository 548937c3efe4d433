"""The process in which ulpscope runs users' scripts, ONNX Runtime and a real TensorRT.

Started by the program as ``python3 -m ulpscope.worker`` (or by the path of ``__main__.py``); nobody imports it. It needs
Python 3.9 or later and NumPy. The protocol is described in ``protocol.py``.
"""
