#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""The operator tests of the package onnx: operators.py --reader PROGRAM --work FOLDER [--write]

Each test of onnx.backend.test is a small model, its inputs and its output. A model here has one input, so a test becomes
as many models as it has inputs of numbers: one of them is the input, the others are constants. read_models either
refuses such a model or gives its output. The table of docs/onnx.md says how many models of each operator gave their
output; --write writes it. The packages come from PyPI, as for check_models.py; the program ends with 77 where they
cannot be installed.
"""

import argparse
import collections
import pathlib
import re
import shutil
import subprocess
import sys
import warnings

import check_models

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "onnx.md"
BEGIN = "<!-- operators: written by tests/onnx/operators.py -->\n"
END = "<!-- end of operators -->\n"
# Of the largest number of the output; some tests have outputs of four digits. Layers compute in float; where a test
# rounds to 16 bits, they do not.
TOLERANCE = 5e-4
TOLERANCE_OF_16_BITS = 2e-2


def cases():
    """Yields (name, model, inputs, outputs) of all tests whose inputs and outputs are tensors."""
    import numpy
    import onnx
    from onnx import numpy_helper
    from onnx.backend.test.case.node import collect_testcases

    for case in collect_testcases(None):
        if case.model is None or not case.data_sets:
            continue
        inputs, outputs = case.data_sets[0]
        if all(isinstance(each, (numpy.ndarray, numpy.generic)) for each in [*inputs, *outputs]):
            yield case.name, case.model, [numpy.asarray(each) for each in inputs], [numpy.asarray(each) for each in outputs]
    data = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data"
    for folder in ("pytorch-converted", "pytorch-operator", "simple"):
        for path in sorted((data / folder).glob("*/model.onnx")):
            read = {"input": [], "output": []}
            try:
                for kind, found in read.items():
                    files = (path.parent / "test_data_set_0").glob(f"{kind}_*.pb")
                    for file in sorted(files, key=lambda file: int(re.findall(r"\d+", file.stem)[-1])):
                        tensor = onnx.TensorProto()
                        tensor.ParseFromString(file.read_bytes())
                        found.append(numpy_helper.to_array(tensor))
                yield path.parent.name, onnx.load(path), read["input"], read["output"]
            except Exception:  # sequences and maps
                continue


def models(folder):
    """Writes the models with their inputs and outputs, and returns the operator and the tolerance of each name."""
    import numpy
    import onnx
    from onnx import numpy_helper

    floats = {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
    about = {}
    for name, model, inputs, outputs in cases():
        graph = model.graph
        declared = [each for each in graph.input if each.name not in {each.name for each in graph.initializer}]
        if len(declared) != len(inputs) or not outputs or outputs[0].dtype.kind not in "fb":
            continue
        operator = graph.node[0].op_type if len(graph.node) == 1 else "several operators"
        for chosen, value in enumerate(inputs):
            kind = declared[chosen].type.tensor_type.elem_type
            if kind not in floats | {onnx.TensorProto.BOOL} or value.ndim < 2 or value.size == 0:
                continue
            made = onnx.ModelProto()
            made.CopyFrom(model)
            for k, each in enumerate(declared):
                if k != chosen:
                    made.graph.initializer.append(numpy_helper.from_array(inputs[k], each.name))
            del made.graph.input[:]
            given = made.graph.input.add()
            given.CopyFrom(declared[chosen])
            del given.type.tensor_type.shape.dim[:]
            for extent in value.shape:
                given.type.tensor_type.shape.dim.add().dim_value = extent
            key = f"{name}.{chosen}"
            onnx.save(made, folder / f"{key}.onnx")
            numpy.save(folder / f"{key}.input.npy", numpy.ascontiguousarray(value, dtype=numpy.float32))
            numpy.save(folder / f"{key}.output.npy", numpy.ascontiguousarray(outputs[0], dtype=numpy.float32))
            kinds = {kind, graph.output[0].type.tensor_type.elem_type}
            sixteen = kinds & {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
            about[key] = (operator, TOLERANCE_OF_16_BITS if sixteen else TOLERANCE)
    return about


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--reader", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    check_models.enter_environment(arguments.work)
    warnings.simplefilter("ignore")

    folder = arguments.work / "operators"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    about = models(folder)
    read = subprocess.run([str(arguments.reader.resolve()), "--results", str(folder)], check=True,
                          stdout=subprocess.PIPE, text=True)
    (arguments.work / "results.txt").write_text(read.stdout)
    given = collections.Counter()
    refused = collections.Counter()
    wrong = []
    for line in read.stdout.splitlines():
        key, result = line.split("\t", 1)
        operator, tolerance = about.pop(key)
        if result.startswith("refused"):
            refused[operator] += 1
        elif float(result) <= tolerance:
            given[operator] += 1
        else:
            wrong.append(f"{key} ({operator}): {result}")
    if about:
        sys.exit(f"read_models says nothing of {sorted(about)}")
    if wrong:
        sys.exit("wrong outputs, neither refused nor right:\n  " + "\n  ".join(sorted(wrong)))
    shutil.rmtree(folder)
    lines = ["| operator | output given | refused |\n", "|---|---|---|\n"]
    lines += [f"| {each} | {given[each]} | {refused[each]} |\n" for each in sorted(given)]
    others = sorted(set(refused) - set(given))
    print(f"{sum(given.values())} models gave their output, {sum(refused.values())} are refused; "
          f"of {len(others)} operators all")
    text = DOCUMENT.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    made = before + BEGIN + "\n" + "".join(lines) + "\n" + END + after
    if arguments.write:
        DOCUMENT.write_text(made)
    elif made != text:
        sys.exit("docs/onnx.md has another table of operators: look at the difference that operators.py --write makes")


if __name__ == "__main__":
    main()
