#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Writes the four gzip-compressed IDX files of a small data set: make_small_images.py DIRECTORY

Each of the ten classes is a bright block at a place of its own, on noise. The same files every time.
"""

import gzip
import pathlib
import random
import struct
import sys

SIDE = 28
TRAINING, TEST = 640, 512


def image(label, noise):
    pixels = bytearray(noise.randrange(64) for _ in range(SIDE * SIDE))
    top, left = 2 + 13 * (label // 5), 1 + 5 * (label % 5)
    for row in range(top, top + 10):
        for column in range(left, left + 6):
            pixels[row * SIDE + column] = 192 + noise.randrange(64)
    return bytes(pixels)


def write(path, magic, extents, payload):
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        file.write(struct.pack(f">{1 + len(extents)}I", magic, *extents) + payload)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    noise = random.Random(1)
    for name, count in (("train", TRAINING), ("t10k", TEST)):
        labels = bytes(noise.randrange(10) for _ in range(count))
        images = b"".join(image(label, noise) for label in labels)
        write(folder / f"{name}-images-idx3-ubyte.gz", 0x803, (count, SIDE, SIDE), images)
        write(folder / f"{name}-labels-idx1-ubyte.gz", 0x801, (count,), labels)


if __name__ == "__main__":
    main()
