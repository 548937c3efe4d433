"""The worker's own MessagePack and its frames, without the program."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")

PYTHON = Path(__file__).resolve().parents[2] / "python"
sys.path.insert(0, str(PYTHON))

from ulpscope.worker import messagepack, protocol  # noqa: E402
from ulpscope.worker.errors import describe  # noqa: E402

from limits import HANGS

VALUES = [
    None, True, False, 0, 127, 128, -1, -32, -33, 255, 65535, 1 << 31, -(1 << 31) - 1, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1, 0.1, -1e300,
    "", "text", "ü" * 40, "x" * 300, "x" * 70000, b"", b"bytes" * 100, [], [1, [2, [3]]], list(range(20)), list(range(70000)),
    {}, {"a": 1, "b": {"c": None}}, {str(i): i for i in range(20)},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_values_survive_packing(value):
    assert messagepack.unpackb(messagepack.packb(value)) == value


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_the_packing_is_messagepack(value):
    reference = pytest.importorskip("msgpack")
    assert reference.unpackb(messagepack.packb(value), strict_map_key=False) == value
    assert messagepack.unpackb(reference.packb(value)) == value


def test_names_that_are_not_utf8_survive():
    name = b"\xff\xfe".decode("utf-8", "surrogateescape")
    assert messagepack.unpackb(messagepack.packb({name: name})) == {name: name}


def test_what_cannot_be_packed_is_named():
    with pytest.raises(TypeError, match="object of type object"):
        messagepack.packb(object())
    with pytest.raises(TypeError, match="keys are strings"):
        messagepack.packb({1: 2})
    with pytest.raises(ValueError, match="64 bits"):
        messagepack.packb(1 << 64)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\xa5ab", b"\x92\x01", b"\x01\x02", b"\xc7\x01\x05a"])
def test_malformed_messages_are_refused(data):
    with pytest.raises((ValueError, protocol.ProtocolError)):
        messagepack.unpackb(data)


def channels():
    return tuple(protocol.Channel(end) for end in socket.socketpair())


def test_tensors_of_every_type_survive_a_frame():
    here, there = channels()
    arrays = [np.arange(6).reshape(2, 3).astype(name) for name in protocol._NATIVE_TYPES]
    arrays += [np.float32(5), np.zeros((2, 0), np.int8), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(4, dtype=">i4")]
    here.send(protocol.REQUEST, 7, {"arrays": arrays, "number": np.float64(2)})
    kind, number, value = there.receive()
    assert (kind, number, value["number"]) == (protocol.REQUEST, 7, 2.0)
    for sent, received in zip(arrays, value["arrays"]):
        assert received.dtype == sent.dtype.newbyteorder("=") and received.shape == sent.shape
        np.testing.assert_array_equal(received, sent)
    value["arrays"][0][...] = 1  # scripts may write into what they get


@pytest.mark.parametrize("name, bits", [("bfloat16", "uint16"), ("fp8", "uint8"), ("float4_e2m1fn", "uint8"), ("int4", "uint8")])
def test_types_that_numpy_does_not_have_are_kept(name, bits):
    here, there = channels()
    array = np.arange(4, dtype=bits).view(protocol.dtype_of(name))
    here.send(protocol.REQUEST, 1, array)
    assert protocol.name_of(there.receive()[2].dtype) == name
    tagged = np.arange(4, dtype=np.dtype(bits, metadata={"ulpscope": name}))
    here.send(protocol.REQUEST, 1, tagged)
    assert protocol.name_of(there.receive()[2].dtype) == name


def test_the_end_and_other_bytes_are_told_apart():
    one, other = socket.socketpair()
    channel = protocol.Channel(one)
    other.sendall(b"x" * 32)
    with pytest.raises(protocol.ProtocolError):
        channel.receive()
    other.close()
    with pytest.raises(protocol.Disconnected):
        channel.receive()


def test_arrays_of_objects_are_refused():
    with pytest.raises(TypeError, match="numbers or bools"):
        protocol.as_array(["text"])


def test_exceptions_become_messages():
    assert "exit with status 3" in describe(SystemExit(3), "a.py:f")["message"]
    assert describe(ValueError("wrong"), "a.py:f")["message"] == "[script] a.py:f: raised ValueError: wrong"


def test_a_worker_process_answers_and_ends(tmp_path):
    one, other = socket.socketpair()
    main = PYTHON / "ulpscope" / "worker" / "__main__.py"

    def connect() -> None:
        os.setpgid(0, 0)
        os.dup2(other.fileno(), 3)

    process = subprocess.Popen([sys.executable, str(main)], preexec_fn=connect, pass_fds=(3, other.fileno()), cwd=tmp_path)
    other.close()
    channel = protocol.Channel(one)
    channel.send(protocol.REQUEST, 1, {"method": "hello", "args": {}})
    assert channel.receive()[2]["executable"] == sys.executable
    channel.send(protocol.REQUEST, 2, {"method": "nothing", "args": {}})
    kind, number, value = channel.receive()
    assert (kind, number) == (protocol.ERROR, 2) and "no method 'nothing'" in value["message"]
    one.shutdown(socket.SHUT_WR)
    assert process.wait(timeout=HANGS) == 0


def test_started_by_hand_it_says_what_it_is():
    result = subprocess.run([sys.executable, "-m", "ulpscope.worker"], cwd=PYTHON, capture_output=True, text=True, close_fds=True)
    assert result.returncode == 2
    assert "started by ulpscope" in result.stderr
