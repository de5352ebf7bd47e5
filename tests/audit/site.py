"""The site as the world gets it: its pages, and a server that compresses them."""

import gzip
import re
import subprocess
import threading
from contextlib import contextmanager, suppress
from functools import cache, partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TEXT = {".css", ".html", ".js", ".json", ".svg", ".txt", ".xml"}
HIDDEN = {"404", "genindex", "search"}  # not meant to be found


def pages(site, wanted=()):
    """The pages of a site by name, such as `position/sinusoidal`: all, or the wanted ones.

    Of the pages of source code, which are made alike, the longest stands for the others.
    """
    found = {
        path.relative_to(site).with_suffix("").as_posix(): path
        for path in sorted(site.rglob("*.html"))
        if "_static" not in path.parts
    }
    sources = [name for name in found if name.startswith("_modules/")]
    for name in sorted(sources, key=lambda name: found[name].stat().st_size)[:-1]:
        del found[name]
    for name in wanted:
        if name not in found:
            raise SystemExit(f"{site} has no page {name}; it has {', '.join(found)}")
    return {name: found[name] for name in wanted or found}


def hidden(name):
    """Whether search engines shall pass over a page."""
    return name in HIDDEN or name.startswith(("_modules/", "embed/"))


def longest(found):
    """The longest page of each folder, whose pages are made alike."""
    sizes = sorted(found, key=lambda name: found[name].stat().st_size)
    return sorted({name.rpartition("/")[0]: name for name in sizes}.values())


def changed(found):
    """The pages whose source changed in the day before the last commit, or is not committed."""
    last = int(git("log", "-1", "--format=%ct"))
    names = git(
        "log", f"--since={last - 24 * 3600}", "--name-only", "--format=", "--", "docs"
    )
    names += git("status", "--porcelain", "--", "docs")
    sources = re.findall(r"docs/(\S+)\.(?:md|rst)$", names, re.MULTILINE)
    return {name for name in sources if name in found}


def git(*arguments):
    """What git says of this checkout."""
    command = ["git", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@cache
def compressed(path):
    """The bytes that travel."""
    return gzip.compress(Path(path).read_bytes())


class Handler(SimpleHTTPRequestHandler):
    """Files, compressed where they are text, kept for ten minutes, as on a usual host of pages."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        """Answer with a file, or with the page for what is missing."""
        path, status = Path(self.translate_path(self.path)), HTTPStatus.OK
        path = path / "index.html" if path.is_dir() else path
        if not path.is_file():
            path, status = Path(self.directory, "404.html"), HTTPStatus.NOT_FOUND
        if path.is_file():
            text = path.suffix in TEXT
            body = compressed(path) if text else path.read_bytes()
        else:
            text, body = False, b"not found"
        self.send_response(status)
        kind = self.guess_type(path)
        self.send_header("Content-Type", f"{kind}; charset=utf-8" if text else kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "max-age=600")
        if text:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(body)

    def handle(self):
        """Serve a browser until it leaves, which it may do in the middle."""
        with suppress(ConnectionError):
            super().handle()

    def log_message(self, *arguments):
        """Stay silent."""


@contextmanager
def served(site):
    """Serve a site on a free port of this machine and give its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
