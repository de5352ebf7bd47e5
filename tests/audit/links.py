"""Links that end nowhere: every address in a page must be a file of the site, every anchor a name in it."""

from functools import cache
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

LINKING = ("href", "src", "poster", "data")


class Reader(HTMLParser):
    """Collect the names and the addresses of a page."""

    def __init__(self):
        super().__init__()
        self.names, self.links = set(), []

    def handle_starttag(self, tag, attrs):
        """Note what a tag is called and where it leads."""
        for key, value in attrs:
            if key == "id" or (tag == "a" and key == "name"):
                self.names.add(value)
            elif key in LINKING and value:
                self.links.append(value)
            elif key == "srcset" and value:
                self.links += [part.split()[0] for part in value.split(",")]


@cache
def read(path):
    """A page's names and links."""
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader


def faults(site, path):
    """What is wrong with the links of a page; those that leave the site are not followed."""
    found = []
    for link in dict.fromkeys(read(path).links):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        start = site if parts.path.startswith("/") else path.parent
        target = start / unquote(parts.path).lstrip("/") if parts.path else path
        target = target.resolve()
        if target.is_dir():
            target /= "index.html"
        if not target.is_relative_to(site.resolve()) or not target.is_file():
            found.append(f"{link} is no file of the site")
        elif parts.fragment and target.suffix == ".html":
            name = unquote(parts.fragment)
            if name not in read(target).names and not name.startswith("/"):
                found.append(f"{link}: {target.name} has no element of that name")
    return found
