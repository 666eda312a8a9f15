"""Read untrusted files: regular files only, JSON of a bounded depth, values of the promised types.

A schema is a `msgspec.Struct` or a dataclass next to the code that writes the file; `checked` is the one validator.
msgspec rather than pydantic: strict by default (true is not a number, "3" is not 3), no dependencies, a sixteenth of
the size. Faults raise `FormatError`; the caller knows the file and the fix, and turns the fault into a sentence.
"""

import errno
import json
import os
import re
import stat
from pathlib import Path
from typing import IO, Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

Schema = TypeVar("Schema")
# Types for schemas. A name may be printed, so it has no control characters and no line breaks.
Name = Annotated[str, Meta(max_length=300, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$")]
Size = Annotated[int, Meta(ge=1, le=1_000_000)]  # of a state, a goal, an action
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]

DEPTH = 32  # of nested lists and objects; our files have at most six
MEGABYTE = 2**20
_SURROGATE = re.compile(r"\\u[dD][89abAB]|\\u[dD][c-fC-F]|[\ud800-\udfff]")


class About(Struct):
    """Check what a policy file or an export says of its origin: what readers print or look up; others are allowed."""

    env: Name | None = None
    eval_env: Name | None = None
    fidelity: Name | None = None
    physics: Name | None = None
    control: Name | None = None
    method: Name | None = None
    seed: Count | None = None
    env_steps: Annotated[float, Meta(ge=0, le=2**63)] | None = None


class FormatError(ValueError):
    """Report that a file's content is invalid. The message says in one line what is wrong."""


def open_regular(path: str | Path, *, most: int | None = None) -> IO[bytes]:
    """Open a regular file to read its bytes. Raises OSError for a pipe, which could block forever, for a device, and
    for a file of more than `most` bytes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if most is not None and status.st_size > most:
            raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes, more than {most:,}", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_text(path: str | Path, *, most: int = 64 * MEGABYTE) -> str:
    """Read a regular file as UTF-8. Raises OSError, or FormatError if it is not text."""
    with open_regular(path, most=most) as file:
        content = file.read(most + 1)
    if len(content) > most:  # the file has grown, or reports no size
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"no UTF-8 text: {error.reason} at byte {error.start}") from None


def read_json(path: str | Path, *, most: int = 64 * MEGABYTE) -> Any:
    """Read a regular file as JSON. Raises OSError, or FormatError if it is not JSON."""
    return parse_json(read_text(path, most=most))


def parse_json(text: str) -> Any:
    """Parse JSON, with NaN and Infinity because our files contain them. Raises FormatError."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise FormatError("nested too deeply") from None
    except ValueError as error:  # invalid JSON, or an integer with more digits than Python accepts
        raise FormatError(" ".join(str(error).split())[:200]) from None
    require_shallow(value)
    if _SURROGATE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise FormatError("text with half a character (a lone surrogate)") from None
    return value


def require_shallow(value: Any, most: int = DEPTH) -> None:
    """Refuse lists and objects nested deeper than `most`, because other code walks over them by recursion."""
    level = [value]
    for _ in range(most):
        level = [inner for outer in level if isinstance(outer, dict | list) for inner in _inside(outer)]
        if not level:
            return
    raise FormatError(f"nested deeper than {most}")


def _inside(value: dict[str, Any] | list[Any]) -> Any:
    return value.values() if isinstance(value, dict) else value


def checked(value: Any, schema: type[Schema]) -> Schema:
    """Return a JSON value as this schema, with all types and ranges checked and nothing converted, or FormatError."""
    try:
        return msgspec.convert(value, schema)
    except msgspec.ValidationError as error:
        raise FormatError(_in_words(error)) from None
    except (RecursionError, ArithmeticError, UnicodeError) as error:
        raise FormatError(f"a value that cannot be read ({type(error).__name__})") from None


def _in_words(error: msgspec.ValidationError) -> str:
    """Reword `Expected `int`, got `str` - at `$.spec.state_size`` as spec.state_size: expected int, got str."""
    reason, _, place = " ".join(str(error).split()).replace("`", "").partition(" - at ")
    where = place.removeprefix("key in ").removeprefix("$").removeprefix(".")[:100]
    reason = reason[:1].lower() + reason[1:][:200]
    return f"{where}: {reason}" if where else reason
