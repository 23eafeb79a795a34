"""Numbers as people write them: 50M, 200k, 1e6, 1/16."""

from __future__ import annotations

import re

UNITS = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9}
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(?!\d)[^,]*")


def parse_count(text: str) -> int:
    """50M, 1e6, 200k, 12_000 or 12,000 as a whole number."""
    plain = text.strip().replace("_", "").lower()
    if "," in plain and not _GROUPED.fullmatch(plain):
        raise ValueError(
            f"{text!r} is not a whole number: a comma stands between groups of three digits, as in 1,500,000, "
            "and a decimal point is a dot; write 1.5M"
        )
    plain = plain.replace(",", "")
    if plain.isdecimal():  # exact, also where a float is not
        return int(plain)
    scale = UNITS.get(plain[-1:], 1.0)
    try:
        value = float(plain[:-1] if scale > 1 else plain) * scale
    except ValueError:
        value = float("nan")
    if not value.is_integer():  # nor are infinity and NaN
        raise ValueError(f"{text!r} is not a whole number; write 50M, 1e6, 200k or 12000")
    return round(value)


def parse_ratio(text: str) -> float:
    """0.0625 or 1/16."""
    over, slash, under = text.partition("/")
    try:
        return float(over) / float(under) if slash else float(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{text!r} is not a number; write 0.0625 or 1/16") from None
