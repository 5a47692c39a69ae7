#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Asks the reference implementation of safetensors which headers it accepts: safetensors_files.py [FOLDER]

Writes headers.txt, which tests/unit/io/safetensors.cpp reads: a line for each header, with what the reference says
("accept", "refuse"; "stricter" where it accepts and gradus refuses by intent), the bytes behind the header, and the
header. A byte that is not a printable character of ASCII, and %, is written as %25. And values.safetensors, a file with
every type.

It needs safetensors 0.8.0 numpy 2 and PyTorch.
"""

import importlib.metadata
import pathlib
import struct
import sys

import numpy as np
import safetensors
import torch
from safetensors.torch import save_file

VERSION = "0.8.0"

TENSOR = '{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'


def accepts(header, size):
    try:
        safetensors.deserialize(struct.pack("<Q", len(header)) + header + bytes(size))
        return True
    except safetensors.SafetensorError:
        return False


def cases():
    """(header, bytes behind it, whether gradus is stricter)"""

    def tensor(text, size=8, stricter=False):
        return ('{"a":%s}' % text, size, stricter)

    def value(text):
        return tensor('{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":%s}' % text)

    def name(text):
        return ('{"%s":%s}' % (text, TENSOR), 8, False)

    def metadata(text, stricter=False):
        return ('{"__metadata__":%s}' % text, 0, stricter)

    yield from (("", 0, False), ("{}", 0, False), ("{}", 1, False), ("[]", 0, False), ("null", 0, False))
    for before, after in ((" ", ""), ("", "   "), ("", "\n\t\r "), ("", "\0"), ("", "}"), ("\ufeff", ""), ("", ",")):
        yield (before + '{"a":%s}' % TENSOR + after, 8, False)
    yield ("{}  ", 0, False)
    # Names.
    for text in ("", "\\u0000", "\\ud83d\\ude00", "\\uD83D\\uDE00", "\\ud83d", "\\ud83dx", "\\ud83d\\u0041", "\\udc00",
                 "\n", "\x01", "\x1f", "\x20", "\x7f", "\\x", "\\a", "\\\\", "\\\"", "\\/\\b\\f\\n\\r\\t", "\\u12",
                 "\\u123g", "\\U0041", "\u00e4", "\u20ac", "\U0001f600", "\\", "a\" \"b"):
        yield name(text)
    for text in (b"\xff", b"\xc0\x80", b"\xc1\xbf", b"\xc2", b"\xe0\x9f\x80", b"\xe0\xa0\x80", b"\xed\x9f\xbf",
                 b"\xed\xa0\x80", b"\xef\xbf\xbf", b"\xf0\x8f\x80\x80", b"\xf0\x90\x80\x80", b"\xf4\x8f\xbf\xbf",
                 b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\x80", b"\xe2\x82"):
        yield (b'{"' + text + b'":' + TENSOR.encode() + b"}", 8, False)
    # Two of a name.
    yield ('{"a":%s,"a":%s}' % (TENSOR, TENSOR), 8, True)
    yield ('{"a":%s,"\\u0061":%s}' % (TENSOR, TENSOR), 8, True)
    yield ('{"a":%s,"a":{"dtype":"F32","shape":[0],"data_offsets":[8,8]}}' % TENSOR, 8, False)
    yield metadata('{"a":"b","a":"c"}', True)
    yield ('{"__metadata__":{},"__metadata__":{}}', 0, False)
    yield ('{"__metadata__":null,"__metadata__":{}}', 0, False)
    # Metadata.
    for text in ('{"a":"b"}', "{}", "null", " null ", "nul", '{"a":1}', '{"a":null}', '{"a":{}}', "[]", '"x"', "false",
                 '{"a":"b",}', '{"a":"\\u0000"}', '{"format":"pt","n":"1"}', '{"":""}'):
        yield metadata(text)
    # Fields.
    for text in (TENSOR, "null", "1", "{}", '["F32",[2],[0,8]]', '["F32",[2],[0,8],1]', '["F32",[2]]', "[]",
                 '{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}',
                 '{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}',
                 '{"dtype":"F32","shape":[2],"data_offsets":[0,8],"data_offsets":[0,8]}',
                 '{"dtype":"F32","shape":[2]}', '{"dtype":"F32","data_offsets":[0,8]}',
                 '{"shape":[2],"data_offsets":[0,8]}', '{"dtype":"F32","shape":[2],"data_offsets":[0,8],}',
                 '{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1,"x":2}',
                 '{"\\u0064type":"F32","shape":[2],"data_offsets":[0,8]}',
                 '{"dtype":"\\u004632","shape":[2],"data_offsets":[0,8]}',
                 '{"Dtype":"F32","shape":[2],"data_offsets":[0,8]}'):
        yield tensor(text)
    # Types.
    for text, stricter in (('"f32"', False), ('"F33"', False), ("13", False), ("null", False), ('{"F32":null}', False),
                           ('{"F32":{}}', False), ('{"F32":[]}', False), ('{"F32":0}', False), ("{}", False),
                           ('{"F32":null,"F64":null}', False), ('{"F32":null,"F32":null}', False), ('["F32"]', False),
                           ('""', False)):
        yield tensor('{"dtype":%s,"shape":[2],"data_offsets":[0,8]}' % text, 8, stricter)
    for kind, size in (("BOOL", 1), ("U8", 1), ("I8", 1), ("I16", 2), ("U16", 2), ("F16", 2), ("BF16", 2), ("I32", 4),
                       ("U32", 4), ("F32", 4), ("F64", 8), ("I64", 8), ("U64", 8)):
        for end in (0, 3 * size - 1, 3 * size, 3 * size + 1):
            yield tensor('{"dtype":"%s","shape":[1,3],"data_offsets":[0,%d]}' % (kind, end), end)
    for kind, count, size in (("F8_E4M3", 2, 2), ("F8_E5M2", 2, 2), ("F8_E8M0", 2, 2), ("F4", 4, 2), ("F6_E2M3", 4, 3),
                              ("F6_E3M2", 4, 3), ("C64", 1, 8)):
        yield tensor('{"dtype":"%s","shape":[%d],"data_offsets":[0,%d]}' % (kind, count, size), size, True)
    # Shapes and offsets.
    big = 2**64 - 1
    for shape, begin, end, size in (
            ("[]", 0, 4, 4), ("[]", 0, 0, 0), ("[0]", 0, 0, 0), ("[0,%d]" % (2**63 - 1), 0, 0, 0),
            ("[%d,%d,0]" % (big, big), 0, 0, 0), ("[%d,0]" % 2**64, 0, 0, 0), ("[4611686018427387904]", 0, 0, 0),
            ("[4294967296,4294967296]", 0, 0, 0), ("[2.0]", 0, 8, 8), ("[2e0]", 0, 8, 8), ("[-2]", 0, 8, 8),
            ("[-0]", 0, 0, 0), ("[02]", 0, 8, 8), ('["2"]', 0, 8, 8), ("[null]", 0, 8, 8), ("2", 0, 8, 8),
            ("{}", 0, 8, 8), ("null", 0, 8, 8), ("[2,]", 0, 8, 8), ("[1,2]", 0, 8, 8), ("[2,1,1,1,1,1,1,1,1,1]", 0, 8, 8),
            ("[3]", 0, 8, 8), ("[2]", 0, 8, 7), ("[2]", 0, 8, 9), ("[2]", 1, 9, 9), ("[2]", 8, 0, 8), ("[2]", 8, 16, 8),
            ("[1]", 0, 8, 8), ("[2]", 0, big, 8), ("[2]", big, 7, 8)):
        yield tensor('{"dtype":"F32","shape":%s,"data_offsets":[%d,%d]}' % (shape, begin, end), size)
    yield tensor('{"dtype":"F32","shape":[0,%d,%d],"data_offsets":[0,0]}' % (big, big), 0, True)
    for text in ("[0]", "[0,8,8]", '{"0":0,"1":8}', "[0,8.0]", "[-0,8]", "null", "[]", "[0,18446744073709551616]",
                 "[0,8 ]", "[ 0 ,\n8]", "[0 8]"):
        yield tensor('{"dtype":"F32","shape":[2],"data_offsets":%s}' % text)
    for begin, end, shape in ((8, 12, 1), (8, 8, 0), (0, 0, 0), (4, 4, 0), (4, 8, 1), (7, 11, 1), (12, 16, 1), (0, 8, 2)):
        text = '{"a":%s,"b":{"dtype":"F32","shape":[%d],"data_offsets":[%d,%d]}}' % (TENSOR, shape, begin, end)
        yield (text, max(8, end), False)
    # Values of fields that no one knows.
    for text in ("null", "true", "false", "tru", "truex", "nul", '"x"', "[]", "{}", "[1,]", "[,]", "{,}", '{"a"}',
                 "{1:2}", "[1 2]", '{"a":1,}', '{"k":1,"k":2}', '{"x":[1,null,-1e5,true,{"y":"z"}]}', "-", "-0", "-01",
                 "01", "1.", "1.e5", ".5", "1e", "1e+", "+1", "0.0", "NaN", "Infinity", "-Infinity", "1e308", "10e308",
                 "1e309", "-1e309", "1.7976931348623157e308", "1.7976931348623158e308", "0e99999999999",
                 "1e-99999999999", "1e99999999999", "1" + "0" * 308, "1" + "0" * 309, "0." + "0" * 400 + "1",
                 "184467440737095516199.1e287", "184467440737095516199.1e288", "1E5", "1e+5", "0x10", "'a'", "/**/1",
                 '"\\ud800"', '"\t"', "[" * 125 + "]" * 125, "[" * 126 + "]" * 126, '{"a":' * 125 + "1" + "}" * 125,
                 '{"a":' * 126 + "1" + "}" * 126):
        yield value(text)


def escaped(header):
    return "".join(chr(b) if 0x20 < b < 0x7F and b != 0x25 else f"%{b:02x}" for b in header)


def main():
    if importlib.metadata.version("safetensors") != VERSION:
        sys.exit(f"safetensors_files.py: needs safetensors {VERSION}")
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "safetensors")
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "headers.txt", "w", encoding="ascii") as file:
        file.write(f"# What safetensors {VERSION} says of headers. Written by tests/golden/safetensors_files.py\n")
        for header, size, stricter in cases():
            data = header if isinstance(header, bytes) else header.encode()
            good = accepts(data, size)
            if stricter and not good:
                sys.exit(f"safetensors_files.py: the reference refuses {header}")
            file.write(f"{'stricter' if stricter else 'accept' if good else 'refuse'} {size} {escaped(data)}\n")

    count = np.arange(6).reshape(2, 3)
    tensors = {
        "bool": count % 2 == 1, "u8": (count + 250).astype(np.uint8), "i8": (count - 3).astype(np.int8),
        "i16": (count - 30000).astype(np.int16), "u16": (count + 65530).astype(np.uint16),
        "f16": (count / 4 - 0.5).astype(np.float16), "i32": (count - 2000000000).astype(np.int32),
        "u32": (count + 4294967290).astype(np.uint32), "f32": (count / 3).astype(np.float32), "f64": count / 7.0,
        "i64": count.astype(np.int64) - 2**62, "u64": count.astype(np.uint64) + np.uint64(2**63),
        "number": np.array(7.5, np.float32), "none": np.zeros((0, 4), np.float32),
        "odd": np.arange(7, dtype=np.uint8), "n\u00e4me \"x\"": np.array([1.0, 2.0], np.float32),
    }
    files = {name: torch.from_numpy(array) for name, array in tensors.items()}
    files["bf16"] = torch.from_numpy(count - 2.5).to(torch.bfloat16)
    save_file(files, folder / "values.safetensors", {"format": "pt", "text": 'a "b"\n\u20ac'})


if __name__ == "__main__":
    main()
