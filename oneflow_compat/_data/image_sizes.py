"""The size of an encoded image, read from its header before anything is decoded.

A decoder allocates what the header says: 57 bytes may ask for 2^30 pixels. So the number of pixels is first
compared with the length of the data.
"""

from __future__ import annotations

import io
import struct

ALLOWANCE, FACTOR = 64 << 20, 64  # decoded bytes of any image, and more for each encoded byte
_CHANNELS = 3
_SCANS = 64  # scans of a progressive JPEG, each of which visits every pixel
# markers of a JPEG that begin a frame, and so hold its size: SOF0 to SOF15 without DHT, JPG and DAC
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})


# other formats of Pillow run programs (EPS) or have no use here
PILLOW_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM", "JPEG2000", "AVIF")


class UnknownFormat(ValueError):
    """The data begins as no image format whose header this module reads."""


def check_size(data: bytes) -> None:
    """Raise ValueError if the image would take more memory or time to decode than its length allows."""
    width, height = _size(data)
    needed, allowed = _CHANNELS * width * height, ALLOWANCE + FACTOR * len(data)
    if needed > allowed:
        raise ValueError(
            f"{width}x{height} pixels in {len(data)} bytes; at most {allowed // _CHANNELS} pixels"
        )
    if data[:2] == b"\xff\xd8" and data.count(b"\xff\xda") > _SCANS:
        raise ValueError(f"a JPEG of more than {_SCANS} scans")


def _size(data: bytes) -> tuple[int, int]:
    """Return (width, height) of an image."""
    for begins, read in _READERS:
        if data.startswith(begins):
            try:
                return read(data)
            except (struct.error, IndexError):
                raise ValueError("its header is cut off") from None
    return _with_pillow(data)


def _png(data: bytes) -> tuple[int, int]:
    if data[12:16] != b"IHDR":
        raise ValueError("its first chunk is no IHDR")
    return struct.unpack_from(">II", data, 16)


def _gif(data: bytes) -> tuple[int, int]:
    return struct.unpack_from("<HH", data, 6)


def _bmp(data: bytes) -> tuple[int, int]:
    if struct.unpack_from("<I", data, 14)[0] == 12:  # the header of OS/2
        return struct.unpack_from("<HH", data, 18)
    width, height = struct.unpack_from("<ii", data, 18)
    return abs(width), abs(height)  # a negative height: the first row is at the top


def _jpeg(data: bytes) -> tuple[int, int]:
    """Skip segments up to that of the frame."""
    at = 2
    while True:
        at = data.find(b"\xff", at)
        if at < 0:
            raise ValueError("it has no frame")
        while data[at] == 0xFF:
            at += 1
        marker = data[at]
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 4)
            return width, height
        at += 1 if marker in _WITHOUT_LENGTH else 1 + struct.unpack_from(">H", data, at + 1)[0]


def _webp(data: bytes) -> tuple[int, int]:
    chunk = data[12:16]
    if chunk == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    if chunk == b"VP8L":
        bits = struct.unpack_from("<I", data, 21)[0]
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if chunk != b"VP8X":
        raise ValueError("its header is that of no WebP image")
    width, height = (int.from_bytes(data[i : i + 3], "little") + 1 for i in (24, 27))
    return width, height


_READERS = (
    (b"\x89PNG\r\n\x1a\n", _png),
    (b"\xff\xd8", _jpeg),
    (b"GIF8", _gif),
    (b"BM", _bmp),
    (b"RIFF", _webp),
)


def _with_pillow(data: bytes) -> tuple[int, int]:
    """Read the header with Pillow, which knows more formats than this module."""
    try:
        from PIL import Image
    except ImportError:
        raise UnknownFormat(
            "the size of an image of this format is read by pillow, which is missing"
        ) from None
    try:
        with Image.open(io.BytesIO(data), formats=PILLOW_FORMATS) as image:
            return image.size
    except Exception as error:  # Pillow's readers of formats raise anything
        raise UnknownFormat(f"no image of a known format ({type(error).__name__})") from None
