"""Pages that hold everything they need in one HTML file: of `dcp explore`, `render` and `report`, and the ledger's.

A page is made from a template, style sheets, ES modules and data; nothing is loaded from elsewhere. A browser that
opens a file from disk does not load modules from other files. So each module becomes a function in one script, and
`import { a } from "./b.js"` reads what b's function returned. Only named imports and exports are supported.
`vendor/` holds libraries from npm with their licences, and says how they were built.
"""

import base64
import hashlib
import json
import posixpath
import re
from collections.abc import Callable
from html import escape
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any

import numpy as np

LEVELS = 65535  # of a number in two bytes
_IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const)\b)", re.MULTILINE)
_EXPORTED = re.compile(r"^export (?:async )?(?:function|class|const) (\w+)", re.MULTILINE)
_EXPORT_LIST = re.compile(r"export\s*\{([^}]*)\};?\s*$")
# Pictures may come only from the page itself. A page may be shown in a frame.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; script-src {}; base-uri 'none'; "
    "form-action 'none'"
)


def asset(name: str) -> str:
    """Return a file of this package, such as `shared/theme.css`."""
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def theme() -> str:
    """Return the style that every page shares, light and dark."""
    return asset("shared/theme.css").replace("/*dark*/", asset("shared/dark.css"))


def whole_page(
    page: str,
    data: Any,
    title: str,
    scripts: list[str] | None = None,
    read: Callable[[str], str] = asset,
    **slots: str,
) -> str:
    """Return the page of this name: its body.html with {{slots}}, its main.js, and `data`, which that reads.

    `read`: where its files are, if they are not of this package. The policy lets only this script and `scripts` of the
    slots run, even if a run's name contains a script.
    """
    own = script(f"{page}/main.js", read)
    policy = content_policy([f"\n{own}\n", *(scripts or [])])
    filled = {"title": escape(title), "data": script_json(data), "script": own, "policy": escape(policy), **slots}
    text = asset("shared/page.html").replace("{{body}}", read(f"{page}/body.html").rstrip())
    return re.sub(r"\{\{(\w+)\}\}", lambda slot: filled[slot[1]], text)


def content_policy(scripts: list[str]) -> str:
    sums = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    return _POLICY.format(" ".join(f"'sha256-{digest}'" for digest in sums))


def script_json(data: Any) -> str:
    """Return JSON for the inside of a script element: no tag can end it, and no number is NaN."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def script(entry: str, read: Callable[[str], str] = asset) -> str:
    """Return the module `entry`, such as `explore/main.js`, and all that it imports as one script."""
    modules: dict[str, str] = {}
    _add_module(PurePosixPath(entry), modules, (), read)
    return "\n".join(["(() => {", '"use strict";', *modules.values(), "})();"])


def _add_module(
    path: PurePosixPath,
    modules: dict[str, str],
    importers: tuple[PurePosixPath, ...],
    read: Callable[[str], str],
) -> None:
    """Add the module after all that it imports."""
    if path in importers:
        raise ValueError(f"{path} imports itself by way of {importers[-1]}")
    source = read(str(path))
    names = {}
    for _, other in _IMPORT.findall(source):
        names[other] = PurePosixPath(posixpath.normpath(path.parent / other))
        if str(names[other]) not in modules:
            _add_module(names[other], modules, (*importers, path), read)
    exported = {name: name for name in _EXPORTED.findall(source)}
    if listed := _EXPORT_LIST.search(source):
        pairs = [part.split(" as ") for part in listed[1].split(",")]
        exported |= {pair[-1].strip(): pair[0].strip() for pair in pairs}
        source = source[: listed.start()]
    source = _IMPORT.sub(lambda m: f"const {{{m[1].replace(' as ', ': ')}}} = {_variable(names[m[2]])};\n", source)
    body = _EXPORT.sub("", source).rstrip()
    gives = ", ".join(name if name == own else f"{name}: {own}" for name, own in exported.items())
    modules[str(path)] = f"// {path}\nconst {_variable(path)} = (() => {{\n{body}\nreturn {{ {gives} }};\n}})();"


def _variable(path: PurePosixPath) -> str:
    """Return the variable of a module: explore/main.js -> module_explore_main."""
    return "module_" + re.sub(r"\W", "_", str(path.with_suffix("")))


# Arrays as short text: exact (float32), or two bytes per number. `shared/packing.js` reads it.


def exact(values: np.ndarray) -> str:
    """Return float32 numbers, low byte first, in base64."""
    return base64.b64encode(np.asarray(values, "<f4").tobytes()).decode()


def pack(values: np.ndarray) -> dict[str, Any]:
    """Pack numbers in two bytes each, every channel of the last axis within its own range.

    The error is at most half a level: a 131,070th of the channel's range.
    """
    values = np.asarray(values, np.float64)
    flat = values.reshape(-1, values.shape[-1])
    low, high = flat.min(axis=0), flat.max(axis=0)
    levels = np.round((flat - low) / np.where(high > low, high - low, 1.0) * LEVELS).astype("<u2")
    text = base64.b64encode(levels.tobytes()).decode()
    return {"shape": list(values.shape), "low": low.tolist(), "high": high.tolist(), "data": text}
