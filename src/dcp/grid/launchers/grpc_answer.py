"""Whether a gRPC server answers at an address, asked in plain HTTP/2: Ray's own client asks a dead one for minutes."""

import socket

# A client's first words: the preface, an empty SETTINGS frame, and a request that any gRPC server answers with 200.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _GOAWAY = 0, 1, 3, 4, 7
_END_STREAM, _END_HEADERS, _PADDED, _PRIORITY = 0x1, 0x4, 0x8, 0x20
_POST, _HTTP, _PATH, _AUTHORITY = b"\x83", b"\x86", b"\x04", b"\x01"  # HPACK's static table
_CONTENT_TYPE, _NEW_NAME, _STATUS_200 = b"\x0f\x10", b"\x00", 0x88
_METHOD = b"/grpc.health.v1.Health/Check"
_LONGEST = 2**14  # bytes of a frame, unless a client allows more


def require_grpc(host: str, port: int, seconds: float, tls: bool = False) -> None:
    """Raises OSError with the reason; `tls`: that somebody listens must be enough."""
    with socket.create_connection((host, port), timeout=seconds) as connection:
        connection.settimeout(seconds)
        if not tls:
            connection.sendall(_request())
            if not _is_ok(connection):
                raise ConnectionError("what answers there is not Ray")


def _request() -> bytes:
    headers = _POST + _HTTP + _PATH + _text(_METHOD) + _AUTHORITY + _text(b"localhost")
    headers += _CONTENT_TYPE + _text(b"application/grpc") + _NEW_NAME + _text(b"te") + _text(b"trailers")
    empty_message = bytes(5)
    frames = (_frame(_SETTINGS, 0, 0), _frame(_HEADERS, _END_HEADERS, 1, headers))
    return _PREFACE + b"".join(frames) + _frame(_DATA, _END_STREAM, 1, empty_message)


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _text(value: bytes) -> bytes:
    """A string of fewer than 127 bytes, as it is."""
    return bytes([len(value)]) + value


def _is_ok(connection: socket.socket) -> bool:
    """Reads frames until the answer's headers. 200 comes first in them, whatever the call itself came to."""
    with connection.makefile("rb") as answers:
        while len(head := answers.read(9)) == 9:
            length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
            if length > _LONGEST:  # another protocol
                return False
            payload = answers.read(length)
            if kind == _HEADERS:
                padding, priority = (1 if flags & _PADDED else 0), (5 if flags & _PRIORITY else 0)
                return _first_field(payload[padding + priority :]) == _STATUS_200
            if kind in (_RST_STREAM, _GOAWAY):
                return False
    return False


def _first_field(block: bytes) -> int | None:
    fields = (byte for byte in block if byte >> 5 != 1)  # not the size of a table
    return next(fields, None)
