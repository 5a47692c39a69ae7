#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Compares the reader of safetensors headers with the reference implementation: compare.py READ_HEADERS [--mutations N]

Both read the golden headers and mutations of them and of generated headers, and must accept the same ones and find the
same tensors. gradus refuses more by intent: two tensors or two metadata of a name, types without a C++ type, extents
above 2^63 - 1. The mutations depend only on the seed. The reference also reads a file that gradus wrote.

The reference is the package safetensors of PyPI. If it cannot be imported, it is installed into a virtual environment
in the folder of --work. Exit code 77: it is not to be had.
"""

import argparse
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys

SKIPPED = 77
HERE = pathlib.Path(__file__).parent
REQUIREMENTS = HERE / "requirements.txt"
GOLDEN = HERE.parent / "golden" / "safetensors" / "headers.txt"
BATCH = 1000

TYPES = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "F64": 8,
         "I64": 8, "U64": 8}
TOKEN = re.compile(rb'"(?:\\.|[^"\\])*"|-?[0-9][0-9.eE+-]*|[A-Za-z]+|\s+|.', re.DOTALL)


def reference(work):
    """The module, which a virtual environment in the folder may have to provide."""
    wanted = REQUIREMENTS.read_text()
    version = re.search(r"^safetensors==(.*)$", wanted, re.MULTILINE).group(1)
    try:
        import safetensors
        if safetensors.__version__ == version:
            return safetensors
    except ImportError:
        pass
    if os.environ.get("GRADUS_IN_ENVIRONMENT"):
        sys.exit(f"compare.py: the environment in {work} has no safetensors {version}")
    environment = work / "venv"
    installed = environment / REQUIREMENTS.name  # what is in the environment
    if not (installed.exists() and installed.read_text() == wanted):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=True)
        pip = subprocess.run([str(environment / "bin" / "pip"), "install", "--quiet", "--requirement",
                              str(REQUIREMENTS)])
        if pip.returncode != 0:
            print(f"skipped: pip cannot install safetensors {version} from PyPI")
            sys.exit(SKIPPED)
        installed.write_text(wanted)
    os.environ["GRADUS_IN_ENVIRONMENT"] = "1"
    python = str(environment / "bin" / "python")
    os.execv(python, [python, "-B", *sys.argv])


def golden():
    """The golden headers: (header, bytes behind it)."""
    for line in GOLDEN.read_text(encoding="ascii").splitlines():
        if not line.startswith("#"):
            _, size, text = line.split(" ", 2)
            yield (re.sub(rb"%(..)", lambda match: bytes([int(match[1], 16)]), text.encode()), int(size))


class Pairs(list):
    """An object of JSON, with keys that occur twice."""


def stricter(header):
    """True if gradus refuses this header, which the reference accepts, by intent."""

    def number(text):
        return text

    tensors = json.loads(header.decode(), object_pairs_hook=Pairs, parse_int=number, parse_float=number)

    def twice(pairs):
        return len({key for key, _ in pairs}) != len(pairs)

    if twice(tensors):
        return True
    for name, value in tensors:
        if name == "__metadata__":
            if value is not None and twice(value):
                return True
            continue
        kind, shape = value[:2]
        if isinstance(value, Pairs):
            fields = dict(value)
            kind, shape = fields["dtype"], fields["shape"]
        if isinstance(kind, Pairs):
            kind = kind[0][0]
        if kind not in TYPES or any(int(extent) >= 2**63 for extent in shape):
            return True
    return False


class Mutations:
    """Headers that follow from a seed."""

    LETTERS = [b"a", b"b", b"w", b".", b"0", b"\\n", b"\\u0041", b"\\ud83d\\ude00", b"\xc3\xa4", b"\xe2\x82\xac",
               b"\xf0\x9f\x98\x80", b"\\\"", b"\\\\", b"\\/", b" ", b"/", b"\x7f"]
    BAD_LETTERS = [b"\\ud800", b"\\udc00", b"\\ud800\\u0041", b"\\x", b"\\u12", b"\x00", b"\x1f", b"\n", b"\xff",
                   b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b'"', b"\\"]
    NUMBERS = [b"0", b"1", b"2", b"8", b"-1", b"-0", b"0.0", b"1.5", b"1e3", b"1E+2", b"01", b"1.", b".5", b"1e", b"+1",
               b"18446744073709551615", b"18446744073709551616", b"9223372036854775807", b"9223372036854775808", b"1e308",
               b"1e309", b"-1e309", b"17976931348623157e292", b"1e-400", b"0e999", b"4294967296", b"NaN", b"0x1"]
    WORDS = [b"null", b"true", b"false", b"nul", b"{", b"}", b"[", b"]", b",", b":", b'""', b"{}", b"[]", b'"dtype"',
             b'"shape"', b'"data_offsets"', b'"__metadata__"', b'"F32"', b'"F16"', b'"F8_E4M3"', b'"F4"', b'"C64"',
             b'"f32"', b'"a"', b'"b"', b'{"F32":null}', b'{"F32":1}']
    SPACES = [b" ", b"\n", b"\t", b"\r", b"  ", b"\n\n"]

    def __init__(self, seed, golden_headers):
        self.random = random.Random(seed)
        self.golden = golden_headers

    def one(self, choices):
        return choices[self.random.randrange(len(choices))]

    def chance(self, of):
        return self.random.random() < of

    def text(self):
        bad = self.chance(0.02)
        return b'"' + b"".join(self.one(self.BAD_LETTERS if bad and self.chance(0.5) else self.LETTERS)
                               for _ in range(self.random.randrange(4))) + b'"'

    def value(self, depth=0):
        kind = self.random.randrange(7 if depth < 4 else 4)
        if kind == 0:
            return self.text()
        if kind == 1:
            return self.one(self.NUMBERS)
        if kind == 2:
            return self.one([b"null", b"true", b"false"])
        if kind == 3:
            digits = "".join(self.one("0123456789") for _ in range(self.random.randrange(1, 25)))
            return (digits.lstrip("0") or "0").encode() + self.one([b"", b".5", b"e5", b"e290", b"e-5", b".25e285"])
        if kind == 4:
            return b"[" + b",".join(self.value(depth + 1) for _ in range(self.random.randrange(3))) + b"]"
        if kind == 5:
            return b"{" + b",".join(self.text() + b":" + self.value(depth + 1)
                                    for _ in range(self.random.randrange(3))) + b"}"
        levels = self.one([1, 10, 120, 121, 122, 123, 124, 125, 126, 127, 128])
        return b"[" * levels + b"]" * levels

    def generated(self):
        """A header that is right, in one of many ways of writing it."""
        count = self.random.randrange(5)
        entries = []
        offset = 0
        names = set()
        for _ in range(count):
            kind = self.one(list(TYPES))
            shape = [self.random.randrange(4) for _ in range(self.random.randrange(4))]
            size = TYPES[kind]
            for extent in shape:
                size *= extent
            name = self.text() if self.chance(0.5) else b'"%s"' % self.one([b"a", b"b", b"conv1.weight", b"bn.bias"])
            if name in names and self.chance(0.9):
                continue
            names.add(name)
            fields = [(b"dtype", b'"%s"' % kind.encode() if self.chance(0.9) else b'{"%s":null}' % kind.encode()),
                      (b"shape", b"[" + b",".join(b"%d" % extent for extent in shape) + b"]"),
                      (b"data_offsets", b"[%d,%d]" % (offset, offset + size))]
            if self.chance(0.1):
                entries.append(name + b":[" + b",".join(text for _, text in fields) + b"]")
            else:
                if self.chance(0.3):
                    fields.append((b"x", self.value()))
                if self.chance(0.5):
                    self.random.shuffle(fields)
                entries.append(name + b":{" + b",".join(b'"' + key + b'":' + text for key, text in fields) + b"}")
            offset += size
        if self.chance(0.3):
            self.random.shuffle(entries)
        if self.chance(0.4):
            pairs = b",".join(self.text() + b":" + self.text() for _ in range(self.random.randrange(4)))
            entries.insert(self.random.randrange(len(entries) + 1), b'"__metadata__":{' + pairs + b"}")
        return b"{" + b",".join(entries) + b"}" + b" " * self.random.randrange(9), offset

    def mutated(self, header):
        kind = self.random.randrange(8)
        if kind < 5:
            tokens = TOKEN.findall(header)
            if not tokens:
                return header
            at = self.random.randrange(len(tokens))
            if kind == 0:
                del tokens[at]
            elif kind == 1:
                tokens.insert(at, self.one(tokens))
            elif kind == 2:
                tokens[at] = self.one([self.value(), self.one(self.WORDS), self.one(self.NUMBERS), self.text()])
            elif kind == 3:
                other = self.random.randrange(len(tokens))
                tokens[at], tokens[other] = tokens[other], tokens[at]
            else:
                tokens.insert(at, self.one(self.SPACES))
            return b"".join(tokens)
        at = self.random.randrange(len(header) + 1)
        if kind == 5:
            return header[:at] + header[at + 1:]
        if kind == 6:
            piece = self.one([self.one(self.LETTERS), self.one(self.BAD_LETTERS), bytes([self.random.randrange(256)]),
                              self.one(self.WORDS)])
            return header[:at] + piece + header[at:]
        return header[:at] + bytes([self.random.randrange(256)]) + header[at + 1:]

    def file(self):
        """The header, and the whole file."""
        header, size = self.one(self.golden) if self.chance(0.3) else self.generated()
        for _ in range(self.one([0, 1, 1, 1, 2, 3])):
            header = self.mutated(header)
        length = len(header)
        if self.chance(0.03):
            size = max(0, size + self.random.randrange(-2, 3))
        if self.chance(0.02):
            length = self.one([length + 1, max(0, length - 1), 0, 2**32, 2**64 - 1, 2**63, 100_000_000, 100_000_001])
        file = struct.pack("<Q", length) + header + self.random.randbytes(size)
        if self.chance(0.02):
            file = file[:self.random.randrange(len(file) + 1)]
        return file


def check_written(program, safetensors, path):
    """The differences of the file that the program writes (write_file in read_headers.cpp)."""
    subprocess.run([str(program), str(path)], check=True)
    file = path.read_bytes()
    found = {name: (info["dtype"], list(info["shape"]), bytes(info["data"]))
             for name, info in safetensors.deserialize(file)}
    expected = {
        "conv1.weight": ("F32", [1, 2, 3], struct.pack("<6f", 0.0, -1.5, 2.25, 3.0, 1e-3, 1e30)),
        "number": ("F64", [], struct.pack("<d", 0.1)), "b": ("BF16", [2], struct.pack("<2H", 0x3F80, 0xC020)),
        "h": ("F16", [1], struct.pack("<e", 0.5)), "counts": ("I64", [2, 1], struct.pack("<2q", -1, 2)),
        "bytes": ("U8", [3], b"\1\2\xff"), "none": ("I32", [0, 5], b""),
    }
    length, = struct.unpack("<Q", file[:8])
    metadata = json.loads(file[8:8 + length])["__metadata__"]
    differences = [] if found == expected else [f"written: {expected}, read by the reference: {found}"]
    if metadata != {"format": "pt", 'a "b"': "line\n\\\x01\u20ac"} or (8 + length) % 64 != 0:
        differences.append(f"metadata {metadata}, header of {length} bytes")
    return differences


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("read_headers", type=pathlib.Path)
    parser.add_argument("--mutations", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/tmp/gradus_safetensors"))
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    safetensors = reference(arguments.work)
    program = subprocess.Popen([str(arguments.read_headers)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    mutations = Mutations(arguments.seed, list(golden()))
    counts = {"accepted": 0, "refused": 0, "refused by intent": 0}
    differences = check_written(arguments.read_headers, safetensors, arguments.work / "written.safetensors")

    def complain(file, text):
        differences.append(f"{file[:300]!r}: {text}")

    def compare(file, line):
        try:
            tensors = safetensors.deserialize(file)
        except safetensors.SafetensorError as failure:
            counts["refused"] += 1
            if line[0] != "-":
                complain(file, f"the reference refuses it: {failure}")
            return
        begin = 8 + struct.unpack("<Q", file[:8])[0]
        if stricter(file[8:begin]):
            counts["refused by intent"] += 1
            if line[0] != "-":
                complain(file, "gradus accepts what it should refuse")
            return
        counts["accepted"] += 1
        if line[0] != "+":
            complain(file, f"gradus refuses it: {line}")
            return
        words = line.split(" ")[1:]
        found = {}
        for i in range(0, len(words), 5):
            name, kind, shape, first, last = words[i:i + 5]
            extents = [int(extent) for extent in shape.split(",") if extent]
            found[bytes.fromhex(name)[1:].decode()] = (kind, extents, file[begin + int(first):begin + int(last)])
        expected = {name: (info["dtype"], list(info["shape"]), bytes(info["data"])) for name, info in tensors}
        if found != expected:
            complain(file, f"gradus reads {found}, the reference {expected}")

    def run(files):
        program.stdin.write(struct.pack("<I", len(files)))
        for file in files:
            program.stdin.write(struct.pack("<I", len(file)) + file)
        program.stdin.flush()
        size, = struct.unpack("<I", program.stdout.read(4))
        lines = program.stdout.read(size).decode(errors="replace").split("\n")
        for file, line in zip(files, lines):
            compare(file, line)

    files = [struct.pack("<Q", len(header)) + header + bytes(size) for header, size in mutations.golden]
    run(files)
    for made in range(0, arguments.mutations, BATCH):
        run([mutations.file() for _ in range(min(BATCH, arguments.mutations - made))])
        if len(differences) > 20:
            break
    program.stdin.close()
    if program.wait() != 0:
        differences.append(f"{arguments.read_headers} ends with {program.returncode}")
    print("\n".join(differences[:20]))
    print(", ".join(f"{count} {what}" for what, count in counts.items()), "-", len(differences), "differences")
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
