"""Random damage of files: cuts, flipped bits, large declared sizes, swapped ranges, other digits."""

from __future__ import annotations

import pathlib


def parts_of(path) -> list[pathlib.Path]:
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


def _cut(body, rng):
    return body[: rng.randrange(len(body) + 1)]


def _flip(body, rng):
    out = bytearray(body)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def _declare(body, rng):
    """Overwrite a possible position of a number with a large number."""
    size = rng.choice((1, 2, 4, 8))
    number = rng.choice(
        (
            0,
            1,
            2 ** (8 * size - 1) - 1,
            2 ** (8 * size - 1),
            2 ** (8 * size) - 1,
            rng.randrange(2 ** (8 * size)),
        )
    )
    at = rng.randrange(max(1, len(body) - size))
    return body[:at] + number.to_bytes(size, rng.choice(("little", "big"))) + body[at + size :]


def _swap(body, rng):
    a, b = sorted(rng.randrange(len(body) + 1) for _ in range(2))
    return rng.choice(
        (body[:a] + body[b:], body[:b] + body[a:], body[b:] + body[:b], body[:a] + bytes(b - a) + body[b:])
    )


def _digits(body, rng):
    """Change a digit: sizes stand as text in headers."""
    places = [i for i, byte in enumerate(body) if chr(byte).isdigit()]
    if not places:
        return _flip(body, rng)
    at = rng.choice(places)
    return body[:at] + rng.choice((b"9", b"0", b"99999999999", b"-1", b"")) + body[at + 1 :]


DAMAGES = (_cut, _flip, _flip, _declare, _declare, _swap, _digits)


def damage(path, rng) -> str:
    """Damage one file of `path`; says which and how."""
    part = rng.choice([p for p in parts_of(path) if p.stat().st_size])
    change = rng.choice(DAMAGES)
    part.write_bytes(change(part.read_bytes(), rng))
    return f"{change.__name__[1:]} {part.name}"
