"""Text of others made safe to print: what would steer a terminal is shown instead of obeyed.

Client ids, exceptions and file names are other people's words. An escape sequence in them could recolour the terminal,
rename its window or overwrite a line, and a mark that turns the direction of writing could make a sentence say another.
"""

from __future__ import annotations

import re

# ASCII's control characters but tab and newline, those of Latin-1, the marks of writing direction, half characters.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """The text with `\\x1b` for the character escape, and so on."""
    return _STEERING.sub(lambda found: ascii(found[0])[1:-1], text)
