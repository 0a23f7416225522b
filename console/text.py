"""The one door for foreign text: what a terminal would obey, or could not show, is made visible."""

import sys


def visible(text: str) -> str:
    """The text with control characters, and what the output cannot encode, as escapes."""
    shown = "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return shown.encode(encoding, "backslashreplace").decode(encoding)
