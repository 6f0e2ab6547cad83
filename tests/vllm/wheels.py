"""Source files of releases that are not installed, read out of their wheels on the package index.

Of a wheel of some hundred megabytes only the table of contents and the files asked for travel.
"""

from __future__ import annotations

import ast
import functools
import io
import json
import subprocess
import sys
import urllib.request
import zipfile

_AHEAD = 1 << 17


class _Remote(io.RawIOBase):
    """A file on a server that gives parts of it."""

    def __init__(self, url):
        self._url, self._at = url, 0
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=60) as answer:
            self._size = int(answer.headers["Content-Length"])

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self._at

    def seek(self, offset, whence=io.SEEK_SET):
        self._at = (0, self._at, self._size)[whence] + offset
        return self._at

    def readinto(self, buffer):
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        part = {"Range": f"bytes={self._at}-{end - 1}"}
        request = urllib.request.Request(self._url, headers=part)
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = answer.read() if answer.status == 206 else b""
        if len(found) != end - self._at:
            raise OSError("the package index gives no parts of files")
        buffer[: len(found)] = found
        self._at = end
        return len(found)


@functools.cache
def wheel(project, version):
    """Return the wheel that pip would install here.

    Raises:
        subprocess.CalledProcessError: pip finds none.
    """
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps"]
    command += ["--ignore-installed", "--only-binary", ":all:", "--report", "-"]
    found = subprocess.run(
        [*command, f"{project}=={version}"], check=True, capture_output=True, timeout=300
    )
    url = json.loads(found.stdout)["install"][0]["download_info"]["url"]
    return zipfile.ZipFile(io.BufferedReader(_Remote(url), _AHEAD))


class Source:
    """One module of a release, as a tree."""

    def __init__(self, text):
        self.text = text
        self._tree = ast.parse(text)

    def fields(self, kind):
        """Return the annotated names in a class's body."""
        body = self._class(kind).body
        return [one.target.id for one in body if isinstance(one, ast.AnnAssign)]

    def attributes(self, kind):
        """Return what a class's methods set on `self`."""
        return {
            node.attr
            for node in ast.walk(self._class(kind))
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        }

    def attributes_of(self, *owners):
        """Return what is looked up on a variable or an attribute of one of these names."""
        return {
            node.attr
            for node in ast.walk(self._tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Attribute | ast.Name)
            and getattr(node.value, "attr", getattr(node.value, "id", "")) in owners
        }

    def methods(self, kind):
        """Return the trees of a class's own methods by name."""
        kinds = ast.FunctionDef | ast.AsyncFunctionDef
        return {one.name: one for one in self._class(kind).body if isinstance(one, kinds)}

    def parameters(self, kind, name):
        """Return the names of a method's parameters without `self`; keyword-only ones last."""
        taken = self.methods(kind)[name].args
        return tuple(one.arg for one in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs))[1:]

    def _class(self, name):
        return next(
            one for one in self._tree.body if isinstance(one, ast.ClassDef) and one.name == name
        )


@functools.cache
def source(version, path):
    """Return a module of a release of vLLM; `path` is below its package."""
    return Source(wheel("vllm", version).read(f"vllm/{path}").decode())
