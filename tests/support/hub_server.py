"""A stand-in of the Hugging Face Hub on this machine: what its HTTP interface answers to `huggingface_hub`'s client.

Repositories are folders of files with one commit after another. Small files come inside the commit, as base64; files
of the endings in `LARGE` by Git LFS, as on the Hub.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LARGE = (".safetensors", ".mp4", ".gif")
TOKEN = "hf_stand_in"


@dataclass
class Hub:
    """What the server holds, and what was asked of it."""

    files: dict[str, dict[str, bytes]] = field(default_factory=dict)  # repository -> path -> content
    private: set[str] = field(default_factory=set)
    messages: list[str] = field(default_factory=list)  # of commits
    blobs: dict[str, bytes] = field(default_factory=dict)  # sha256 -> content, by LFS
    asked: list[str] = field(default_factory=list)
    broken: dict[str, Callable[[Any], None]] = field(default_factory=dict)  # the end of a path -> what answers instead
    url: str = ""

    def commit_of(self, repo: str) -> str:
        whole = b"".join(name.encode() + content for name, content in sorted(self.files[repo].items()))
        return hashlib.sha1(whole).hexdigest()


class _Answers(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.split("?")[0]
        self.hub.asked.append(f"{self.command} {path}")
        for end, answer in self.hub.broken.items():
            if path.endswith(end):
                return answer(self)
        for pattern, answer in _ROUTES:
            if found := re.fullmatch(pattern, f"{self.command} {path}"):
                return answer(self, body, *found.groups())
        return self._send(404, {"error": f"the stand-in does not know {self.command} {path}"})

    def _send(self, code: int, content: Any, **headers: str) -> None:
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    @property
    def _may_write(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _missing(self, repo: str) -> bool:
        if repo in self.hub.files and (repo not in self.hub.private or self._may_write):
            return False
        self._send(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
        return True

    def create(self, body: bytes) -> None:
        asked = json.loads(body)
        if not self._may_write:
            return self._send(401, {"error": "Invalid credentials in Authorization header"})
        repo = f"{asked.get('organization') or 'someone'}/{asked['name']}"
        code = 409 if repo in self.hub.files else 200
        self.hub.files.setdefault(repo, {})
        if asked.get("private") or asked.get("visibility") == "private":
            self.hub.private.add(repo)
        return self._send(code, {"url": f"{self.hub.url}/{repo}", "name": repo, "id": repo})

    def validate(self, body: bytes) -> None:
        assert json.loads(body)["content"].startswith("---\n")
        self._send(200, {"errors": [], "warnings": []})

    def preupload(self, body: bytes, repo: str) -> None:
        if self._missing(repo):
            return
        mode = {True: "lfs", False: "regular"}
        files = [
            {"path": file["path"], "uploadMode": mode[file["path"].endswith(LARGE)], "shouldIgnore": False}
            for file in json.loads(body)["files"]
        ]
        self._send(200, {"files": files})

    def batch(self, body: bytes, repo: str) -> None:
        objects = [
            {
                "oid": one["oid"],
                "size": one["size"],
                "authenticated": True,
                "actions": {"upload": {"href": f"{self.hub.url}/lfs/{one['oid']}", "header": {}}},
            }
            for one in json.loads(body)["objects"]
        ]
        self._send(200, {"transfer": "basic", "objects": objects})

    def store(self, body: bytes, oid: str) -> None:
        assert hashlib.sha256(body).hexdigest() == oid
        self.hub.blobs[oid] = body
        self._send(200, {})

    def commit(self, body: bytes, repo: str) -> None:
        if self._missing(repo):
            return
        for line in body.decode().splitlines():
            one = json.loads(line)
            value = one["value"]
            if one["key"] == "header":
                self.hub.messages.append(value["summary"])
            elif one["key"] == "file":
                self.hub.files[repo][value["path"]] = base64.b64decode(value["content"])
            elif one["key"] == "lfsFile":
                self.hub.files[repo][value["path"]] = self.hub.blobs[value["oid"]]
        oid = self.hub.commit_of(repo)
        self._send(200, {"success": True, "commitOid": oid, "commitUrl": f"{self.hub.url}/{repo}/commit/{oid}"})

    def info(self, body: bytes, repo: str, revision: str | None = None) -> None:
        if self._missing(repo):
            return
        if revision not in (None, "main", self.hub.commit_of(repo)):
            return self._send(404, {"error": "Invalid rev id"}, X_Error_Code="RevisionNotFound")
        siblings = [{"rfilename": name, "size": len(file)} for name, file in self.hub.files[repo].items()]
        about = {"id": repo, "modelId": repo, "sha": self.hub.commit_of(repo), "siblings": siblings, "tags": []}
        self._send(200, {**about, "private": repo in self.hub.private, "downloads": 0, "likes": 0})

    def tree(self, body: bytes, repo: str, revision: str) -> None:
        if self._missing(repo):
            return
        files = [
            {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
            for name, content in self.hub.files[repo].items()
        ]
        self._send(200, files)

    def resolve(self, body: bytes, repo: str, revision: str, name: str) -> None:
        if self._missing(repo):
            return
        if name not in self.hub.files[repo]:
            return self._send(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound")
        content = self.hub.files[repo][name]
        etag = f'"{hashlib.sha256(content).hexdigest()}"'
        self._send(200, content, ETag=etag, X_Repo_Commit=self.hub.commit_of(repo), Accept_Ranges="bytes")


_REPO = r"([\w.-]+/[\w.-]+)"
_ROUTES = [
    (r"POST /api/repos/create", _Answers.create),
    (r"POST /api/validate-yaml", _Answers.validate),
    (rf"POST /api/models/{_REPO}/preupload/main", _Answers.preupload),
    (rf"POST /{_REPO}\.git/info/lfs/objects/batch", _Answers.batch),
    (r"PUT /lfs/(\w+)", _Answers.store),
    (rf"POST /api/models/{_REPO}/commit/main", _Answers.commit),
    (rf"GET /api/models/{_REPO}/tree/([\w.-]+)", _Answers.tree),
    (rf"GET /api/models/{_REPO}/revision/([\w.-]+)", _Answers.info),
    (rf"GET /api/models/{_REPO}", _Answers.info),
    (rf"(?:GET|HEAD) /{_REPO}/resolve/([\w.-]+)/([\w./-]+)", _Answers.resolve),
]


@contextmanager
def serving() -> Iterator[Hub]:
    """Serve on a free port of this machine."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Answers", (_Answers,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
