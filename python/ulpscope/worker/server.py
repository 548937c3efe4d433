"""The worker's loop: requests in, results or errors out."""

from __future__ import annotations

import argparse
import faulthandler
import gc
import importlib
import os
import select
import signal
import socket
import sys
import threading
from typing import Any, Callable, Dict, List, Optional

from .errors import ProgramError, WorkerError, describe

_SOCKET = 3

# module -> its functions, each under the name of its method; modules are imported when they are first needed
_FUNCTIONS = {
    "server": "echo",
    "network_scripts": "load_network postprocess_network load_config postprocess_config",
    "data_scripts": "open_data_loader next_data close_data_loader compare postprocess_result",
    "metric_scripts": "open_metric run_metric close_metric",
    "onnx_files": "convert_to_float16 save_onnx",
    "polygraphy_script": "polygraphy_script",
    "plots": "check_plots heatmaps error_metrics",
    "onnxruntime_backend": "onnxruntime_operators onnxruntime_open onnxruntime_run onnxruntime_close",
    "onnx_checks": "onnx_prepare onnx_check",
    "ray_cluster": "ray_open ray_start ray_submit ray_expect ray_poll ray_close",
    "report.page": "report_page",
    "tensorrt_backend": "tensorrt_open tensorrt_run tensorrt_close",
}
_MODULE_OF = {method: module for module, methods in _FUNCTIONS.items() for method in methods.split()}


class Server:
    """Handles one request at a time; while it does, it may send requests of its own."""

    def __init__(self, channel: Any, shims: str) -> None:
        self.channel = channel
        self.shims = shims
        self._number = 0

    def request(self, method: str, args: Optional[Dict[str, Any]] = None) -> Any:
        """Asks the program something in the middle of a call. Raises ProgramError when it refuses."""
        from .protocol import ERROR, REQUEST

        self._number += 1
        self.channel.send(REQUEST, self._number, {"method": method, "args": args or {}})
        kind, _, value = self.channel.receive()
        if kind == ERROR:
            raise ProgramError(value["code"], value["message"])
        return value

    def serve(self) -> None:
        """Until the program closes its end."""
        from .protocol import ERROR, RESPONSE, Disconnected

        while True:
            try:
                _, number, value = self.channel.receive()
            except Disconnected:
                return
            kind, result = RESPONSE, None
            try:
                result = self._run(value["method"], value.get("args") or {})
            except Disconnected:
                return
            except BaseException as error:  # exit() in a script must not end the worker
                kind, result = ERROR, describe(error, _place(value))
                del error
            _flush()
            try:
                self.channel.send(kind, number, result)
            except (TypeError, ValueError, OSError, RecursionError) as error:
                self.channel.send(ERROR, number, describe(error, _place(value)))
            del value, result
            gc.collect(0)

    def _run(self, method: str, args: Dict[str, Any]) -> Any:
        if method == "hello":
            return {"python": sys.version.split()[0], "executable": sys.executable}
        if method not in _MODULE_OF:
            raise WorkerError("script", f"[script] worker: it has no method {method!r}: program and Python package differ in version")
        module = importlib.import_module("." + _MODULE_OF[method], __package__)
        function: Callable[..., Any] = getattr(module, method)
        return function(self, **args)


def echo(server: Any, value: Any = None, ask: bool = False, repeat: int = 0) -> Any:
    """What it was given; through the program and back if ``ask``. For tests of the protocol."""
    for _ in range(repeat):
        print("x" * 1000)
    return server.request("echo", {"value": value}) if ask else value


def _place(request: Any) -> str:
    args = request.get("args") or {}
    path, function = args.get("path"), args.get("function")
    if path and function:
        return f"{path}:{function}"
    return str(path or request.get("method"))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass


def _end_with_the_program() -> None:
    """A thread that ends this process group when the program is gone, however busy a script is."""

    def watch() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        poller = select.poll()
        poller.register(_SOCKET, 0)
        while True:
            for _, event in poller.poll():
                if event & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
                    if os.getpgrp() == os.getpid():
                        os.killpg(0, signal.SIGKILL)
                    os._exit(1)

    threading.Thread(target=watch, name="ulpscope-watch", daemon=True).start()


def use_shims(order: str) -> None:
    """Puts our ``tensorrt``, which Polygraphy finds, before an installed one or behind it; nothing is installed."""
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shims")
    os.environ["POLYGRAPHY_AUTOINSTALL_DEPS"] = "0"
    if order == "first":
        sys.path.insert(0, folder)
        os.environ["POLYGRAPHY_USE_TENSORRT_RTX"] = "0"
    else:
        sys.path.append(folder)


def main(arguments: List[str]) -> int:
    parser = argparse.ArgumentParser(prog="ulpscope.worker", description="Started by ulpscope; not for people.")
    parser.add_argument("--shims", choices=("first", "fallback"), default="fallback")
    parser.add_argument("--log-level", default="INFO", help="a level of Polygraphy's logger")
    parser.add_argument(
        "--one-thread", action="store_true", help="NumPy starts no threads, which takes as long as to import it"
    )
    options = parser.parse_args(arguments)
    if options.one_thread:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        connection = socket.socket(fileno=os.dup(_SOCKET))
    except OSError:
        print("ulpscope.worker: started by ulpscope over a socket; there is none", file=sys.stderr)
        return 2
    os.set_inheritable(_SOCKET, False)
    faulthandler.enable(all_threads=False)
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    _end_with_the_program()
    use_shims(options.shims)
    try:
        from .protocol import Channel
    except ImportError as error:
        _refuse(connection, error)
        return 1
    from . import scripts

    scripts.log_level = options.log_level
    Server(Channel(connection), options.shims).serve()
    _flush()
    return 0


def _refuse(connection: socket.socket, error: ImportError) -> None:
    """Answers the first request although NumPy cannot be imported."""
    import struct

    from . import messagepack

    package = getattr(error, "name", None) or "numpy"
    if package.split(".")[0] == "numpy":
        package = "numpy"
    value = {
        "code": "not_found",
        "message": f"[script] worker: expected the Python package {package}, got none in '{sys.executable}' ({error}); try "
        f"'{sys.executable} -m pip install {package}' (with onnxruntime, for --onnxrt), or name another Python in ULPSCOPE_PYTHON",
    }
    header = b""
    while len(header) < 32:
        more = connection.recv(32 - len(header))
        if not more:
            return
        header += more
    layout = struct.Struct("<4sBBHIIQQ")
    number, length = layout.unpack(header)[4], layout.unpack(header)[6]
    while length:
        length -= len(connection.recv(length))
    message = messagepack.packb(value)
    connection.sendall(layout.pack(b"ULPW", 1, 3, 0, number, 0, len(message), 0) + message)
