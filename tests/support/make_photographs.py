#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Writes a folder of class folders with JPEG files in ImageNet's shape: make_photographs.py FOLDER [options]

Each class has a tint, on large and small random patches, so that files are about as long as photographs. The same files
every time. It calls libturbojpeg, which the component gradus::jpeg needs too.
"""

import argparse
import ctypes
import ctypes.util
import pathlib
import random
import sys


def turbojpeg():
    """The library, or a message that says what is missing."""
    name = ctypes.util.find_library("turbojpeg")
    if name is None:
        sys.exit("make_photographs.py: libturbojpeg is missing (Debian: libturbojpeg0-dev)")
    library = ctypes.CDLL(name)
    library.tjInitCompress.restype = ctypes.c_void_p
    library.tjCompress2.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                                    ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_ulong),
                                    ctypes.c_int, ctypes.c_int, ctypes.c_int]
    library.tjFree.argtypes = [ctypes.c_void_p]
    return library


def random_bytes(noise, count):
    return noise.getrandbits(8 * count).to_bytes(count, "little")


def pixels(width, height, tint, noise):
    """Rows of RGB: patches of 8 x 8 pixels of one brightness, with grain."""
    rows = []
    for top in range(0, height, 8):
        patches = b"".join(bytes((part + brightness) // 2 for part in tint) * 8
                           for brightness in random_bytes(noise, (width + 7) // 8))[:3 * width]
        for _ in range(top, min(top + 8, height)):
            grain = int.from_bytes(random_bytes(noise, 3 * width), "little") & int.from_bytes(b"\x1f" * 3 * width, "little")
            rows.append((int.from_bytes(patches, "little") ^ grain).to_bytes(3 * width, "little"))
    return b"".join(rows)


def compress(library, handle, width, height, rgb):
    buffer, size = ctypes.c_void_p(), ctypes.c_ulong()
    if library.tjCompress2(handle, rgb, width, 0, height, 0, ctypes.byref(buffer), ctypes.byref(size), 2, 92, 0) != 0:
        sys.exit("make_photographs.py: libturbojpeg refused an image")
    content = ctypes.string_at(buffer, size.value)
    library.tjFree(buffer)
    return content


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--classes", type=int, default=4)
    parser.add_argument("--width", type=int, default=500)
    parser.add_argument("--height", type=int, default=375)
    parser.add_argument("--corrupt", type=int, default=0, metavar="N", help="the last N images are cut short")
    asked = parser.parse_args()
    library = turbojpeg()
    handle = library.tjInitCompress()
    noise = random.Random(1)
    tints = [random_bytes(noise, 3) for _ in range(asked.classes)]
    for number in range(asked.images):
        kind = number % asked.classes
        folder = asked.folder / f"class{kind:04d}"
        folder.mkdir(parents=True, exist_ok=True)
        content = compress(library, handle, asked.width, asked.height,
                           pixels(asked.width, asked.height, tints[kind], noise))
        if number >= asked.images - asked.corrupt:
            content = content[:len(content) // 2]
        (folder / f"image{number:06d}.JPEG").write_bytes(content)


if __name__ == "__main__":
    main()
