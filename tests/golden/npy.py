#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Writes the .npy files of tests/golden/npy with NumPy: npy.py [FOLDER]

tests/unit/data/npy.cpp reads them: arrays that are read, and kinds of arrays that are refused. The number at
(i, j, ...) is its position in C order, unless stated otherwise.
"""

import pathlib
import sys

import numpy as np
from numpy.lib import format as npy_format


def count(shape, dtype):
    return np.arange(int(np.prod(shape, dtype=int)), dtype=dtype).reshape(shape)


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "npy")
    folder.mkdir(parents=True, exist_ok=True)
    for dtype in ("|u1", "|i1", "<i2", "<i4", "<i8", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"):
        np.save(folder / f"{dtype[1:]}.npy", count((2, 3), dtype) - np.dtype(dtype).type(dtype[1] == "i"))
    np.save(folder / "vector.npy", count((5,), "<f4"))
    np.save(folder / "number.npy", np.array(7.5, "<f8"))
    np.save(folder / "none.npy", count((0, 4), "<f4"))
    np.save(folder / "images.npy", count((2, 3, 2, 2), "<f4"))
    np.save(folder / "images_last.npy", np.ascontiguousarray(count((2, 3, 2, 2), "<f4").transpose(0, 2, 3, 1)))
    for version in ((2, 0), (3, 0)):
        with open(folder / f"version{version[0]}.npy", "wb") as file:
            npy_format.write_array(file, count((2, 3), "<f4"), version)
    np.save(folder / "fortran.npy", np.asfortranarray(count((2, 3), "<f4")))
    np.save(folder / "big_endian.npy", count((2, 3), ">f4"))
    np.save(folder / "fortran_big_endian.npy", np.asfortranarray(count((2, 3), ">f4")))
    np.save(folder / "fortran_axes.npy", np.asfortranarray(count((2, 3, 2, 2), "<i4")))
    np.save(folder / "big_u2.npy", count((2, 3), ">u2"))
    np.save(folder / "bool.npy", np.ones((2, 3), bool))
    np.save(folder / "truths.npy", np.array([True, False, True]))
    np.savez(folder / "two.npz", x=count((2, 3), "<f4"), y=np.array([1, 0], "<i4"))
    # What is refused.
    np.savez_compressed(folder / "compressed.npz", x=count((2, 3), "<f4"))
    np.save(folder / "objects.npy", np.array([1, "a"], object), allow_pickle=True)
    np.save(folder / "structured.npy", np.zeros(2, [("x", "<f4"), ("label", "<i4")]))
    np.save(folder / "complex.npy", np.zeros(2, "<c8"))
    np.save(folder / "texts.npy", np.array(["a", "bc"]))
    np.savez(folder / "archive.npz", x=count((2,), "<f4"))


if __name__ == "__main__":
    main()
