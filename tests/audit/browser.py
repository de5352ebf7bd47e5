"""A page in the browser: what it fetches and complains about, its fit, keyboard, axe, and no script."""

from itertools import product
from pathlib import Path
from urllib.parse import urlsplit
from zlib import crc32

from . import npm

PHONE, WIDE = {"width": 375, "height": 812}, {"width": 1440, "height": 900}
ASKED = {  # at which sizes, with which framework shown
    "overflow": [(PHONE, 0), (PHONE, 1)],
    "pointer": [(WIDE, 0), (PHONE, 1)],
    "header": [(PHONE, 0), (PHONE | {"width": 320}, 1)],
    "filters": [(WIDE, 0)],
    "steady": [(PHONE, 0), (WIDE, 1)],
    "paper": [(PHONE | {"width": 700}, 0)],
    "embeds": [(WIDE, 0)],
}
COLUMNS = (375, 640, 880, 1440)  # into which an explorer may be put
KIB, HEAVIEST, HEAVIEST_DECK = 1024, 300, 250
PATIENCE = 180_000  # milliseconds, for a busy machine
WEIGHT = """["navigation", "resource"].flatMap((kind) => performance.getEntriesByType(kind))
    .reduce((sum, entry) => sum + entry.transferSize, 0)"""
SCRIPT = Path(__file__).with_name("page.js")
THEMES = ("light", "dark")


def faults(browser, address, thorough=True):
    """What is wrong with a page, by the name of the check, and its weight in `kib`.

    Axe takes longest, and looks only if it is to be `thorough`.
    """
    context = browser.new_context(viewport=PHONE, color_scheme="light")
    page = context.new_page()
    heard = listen(page, address)
    page.goto(address, timeout=PATIENCE)  # a slow parser leaves the network idle before
    page.wait_for_load_state("networkidle")
    kib = round(page.evaluate(WEIGHT) / KIB)
    deck = "/slides/" in address
    most = HEAVIEST_DECK if deck else HEAVIEST
    found = {"weight": [f"{kib} KiB, more than {most}"] if kib > most else []}
    page.evaluate(SCRIPT.read_text(encoding="utf-8"))
    words = page.evaluate("audit.words()")
    # reveal.js writes its speaker's window with scripts of its own, which no policy would let in
    found["policy"] = [] if deck else page.evaluate("audit.policy()")
    found["keyboard"] = keyboard(page)
    found |= {check: asked(page, check) for check in ASKED}
    if thorough:
        found["axe"] = axe(page)
    context.close()
    found["policy"] += heard
    found["no script"] = without_script(browser, address, words)
    return found | {"kib": kib}


def listen(page, address):
    """A list that will hold what goes wrong on a page."""
    heard = []
    site = address[: address.index("/", len("http://"))]

    def say(what):
        if what not in heard:
            heard.append(what)

    def request(request):
        if not request.url.startswith((site, "data:", "blob:")):
            say(f"asks for {request.url}")

    def response(response):
        if response.status >= 400 and response.url != page.url:
            say(f"{response.url} answers {response.status}")

    def console(message):
        if message.type in ("error", "warning"):
            say(f"console: {message.text}")

    page.on("console", console)
    page.on("pageerror", lambda error: say(f"error: {error}"))
    page.on("request", request)
    page.on("response", response)
    return heard


def asked(page, check):
    """What a page answers to a check."""
    found = []
    page.emulate_media(media="print" if check == "paper" else "screen")
    for size, framework in ASKED[check]:
        page.set_viewport_size(size)
        page.evaluate("n => audit.show(n)", framework)
        answer = page.evaluate(f"audit.{check}()")
        found += whole(page.context, answer) if check == "embeds" else answer
    page.emulate_media(media="screen")
    return list(dict.fromkeys(found))


def whole(context, lines):
    """Which explorers are cut off in the frames that their lines make, at any width."""
    host, found = context.new_page(), []
    for line, width in product(lines, COLUMNS):
        host.set_viewport_size({"width": width, "height": 900})
        host.set_content(f'<body style="margin: 0">{line}')
        frame = host.frames[1]
        frame.evaluate(SCRIPT.read_text(encoding="utf-8"))
        found += frame.evaluate("audit.whole()")
    host.close()
    return found


def keyboard(page):
    """Walk through a page with Tab, then turn every tab and every fold."""
    page.set_viewport_size(WIDE)
    page.evaluate("audit.watch()")
    while page.evaluate("audit.goes()"):
        for _ in range(20):
            page.keyboard.press("Tab")
    found = page.evaluate("audit.missed()")
    for number, keys in enumerate(page.evaluate("audit.tries()")):
        for key in keys:
            page.evaluate("n => audit.focus(n)", number)
            page.keyboard.press(key)
            found += page.evaluate("key => audit.turned(key)", key)
    return found


def states(path):
    """Width, theme and framework of a page, twice and each time others; the site is seen in all eight."""
    theme, framework = divmod(crc32(path.encode()) % 4, 2)
    return (PHONE, THEMES[theme], framework), (WIDE, THEMES[1 - theme], 1 - framework)


def axe(page):
    """The violations that axe-core finds in two states of a page, which differ in everything."""
    page.evaluate((npm.PACKAGES / "axe-core" / "axe.min.js").read_text())
    found = []
    for size, theme, framework in states(urlsplit(page.url).path):
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=theme)
        page.evaluate("n => audit.show(n)", framework)
        found += page.evaluate("audit.violations()")
    return list(dict.fromkeys(found))


def without_script(browser, address, words):
    """What a page lacks where scripts are off: text, tabs, folds."""
    context = browser.new_context(viewport=PHONE, java_script_enabled=False)
    page = context.new_page()
    page.goto(address, timeout=PATIENCE)
    page.evaluate(SCRIPT.read_text(encoding="utf-8"))
    left = page.evaluate("audit.words()")
    found = [f"{words - left} of {words} blocks of text vanish"] if left < words else []
    found += page.evaluate("audit.works()")
    context.close()
    return found
