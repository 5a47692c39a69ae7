#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Small ONNX models in onnxruntime: operator_models.py --reader PROGRAM --work FOLDER

Models of one operator or a few, with what the tests of the package onnx (operators.py) do not have: operators in the
place where exporters write them, older versions, several images, open extents. read_models computes the output of
onnxruntime, to 1e-5 of its largest number. The packages come from PyPI, as for check_models.py; the program ends with
77 where they cannot be installed.
"""

import argparse
import itertools
import pathlib
import shutil
import subprocess
import sys
import warnings

import check_models

TOLERANCE = 1e-5  # of the largest number of the output


class Models:
    """Writes models with inputs and outputs into a folder."""

    def __init__(self, folder):
        self.folder = folder
        self.names = []

    def add(self, name, shape, nodes, constants=None, opset=20, open_axes=(0,)):
        """Nodes are (operator, inputs, attributes...); the last one gives the output, each other one its name: `@1` is
        the output of the first. `x` is the input of the model."""
        import numpy
        import onnx
        import onnxruntime
        from onnx import TensorProto, helper, numpy_helper

        made = []
        for k, (operator, inputs, *attributes) in enumerate(nodes):
            attributes = attributes[0] if attributes else {}
            outputs = attributes.pop("outputs", 1)
            first = "y" if k + 1 == len(nodes) else f"@{k + 1}"
            made.append(helper.make_node(operator, list(inputs), [first] + [f"{first}.{i}" for i in range(1, outputs)],
                                         name=f"{operator}{k}", **attributes))
        initializers = [numpy_helper.from_array(numpy.asarray(value), key) for key, value in (constants or {}).items()]
        dims = [f"d{k}" if k in open_axes else extent for k, extent in enumerate(shape)]
        graph = helper.make_graph(made, name, [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        path = self.folder / f"{name}.onnx"
        onnx.save(model, path)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        images = numpy.random.default_rng(len(self.names)).standard_normal(shape).astype(numpy.float32)
        numpy.save(path.with_suffix(".input.npy"), images)
        numpy.save(path.with_suffix(".output.npy"), session.run(None, {"x": images})[0])
        self.names.append(name)


def integers(*numbers):
    import numpy
    return numpy.array(numbers, numpy.int64)


def reals(*shape, low=-1.0, high=1.0):
    import numpy
    return numpy.random.default_rng(sum(shape)).uniform(low, high, shape).astype(numpy.float32)


def moved(models):
    """Slices, pads, and what exchanges axes."""
    for name, slices in {"step": ([0], [7], [2], [2]), "steps": ([1, 0], [99, -1], [2, 3], [2, 3]),
                         "channels": ([1], [6], [1], [2]), "all": ([1, 1, 2], [5, 7, 9], [1, 2, 3], [3, 2, 4]),
                         "longer": ([2], [4], [3], [100])}.items():
        begin, end, axes, steps = slices
        models.add(f"slice_{name}", (2, 6, 7, 9), [("Slice", ["x", "b", "e", "a", "s"])],
                   {"b": integers(*begin), "e": integers(*end), "a": integers(*axes), "s": integers(*steps)})
    models.add("slice_of_features", (2, 12), [("Slice", ["x", "b", "e", "a", "s"])],
               {"b": integers(1), "e": integers(12), "a": integers(1), "s": integers(3)})
    for name, pads in {"crop": [0, 0, -1, -2, 0, 0, -1, 0], "both": [0, 0, -1, 2, 0, 0, 3, -2],
                       "channels": [0, -1, 0, 0, 0, 2, 0, 0], "to_zeros": [0, 0, -4, 0, 0, 0, 2, 1]}.items():
        models.add(f"pad_{name}", (2, 3, 6, 7), [("Pad", ["x", "p"])], {"p": integers(*pads)})
    models.add("pad_value", (2, 3, 6, 7), [("Pad", ["x", "p", "v"])],
               {"p": integers(0, 0, -1, 2, 0, 0, 2, -1), "v": reals(1)[0]})
    models.add("pad_attribute", (2, 3, 6, 7), [("Pad", ["x"], {"pads": [0, 0, -1, 1, 0, 0, 0, -2], "mode": "constant"})],
               opset=10)
    for order in itertools.permutations(range(1, 5)):
        models.add("transpose_5_" + "".join(map(str, order)), (2, 6, 4, 5),
                   [("Reshape", ["x", "to"]), ("Transpose", ["@1"], {"perm": [0, *order]}), ("Reshape", ["@2", "back"])],
                   {"to": integers(0, 2, 3, 4, 5), "back": integers(0, 4, -1)})
    for order in ((1, 4, 2, 5, 3), (1, 3, 5, 2, 4), (5, 4, 3, 2, 1), (2, 1, 4, 3, 5), (3, 5, 1, 2, 4)):
        for extents in ((3, 2, 2, 2, 4), (3, 2, 2, 4, 2), (2, 1, 3, 2, 4)):
            name = "transpose_6_" + "".join(map(str, (*order, *extents)))
            nodes = [("Reshape", ["x", "to"]), ("Transpose", ["@1"], {"perm": [0, *order]})]
            models.add(name, (2, 6, 4, 4 if extents[1] > 1 else 2), nodes + [("Reshape", ["@2", "back"])],
                       {"to": integers(0, *extents), "back": integers(0, -1)})
            image = [extents[k - 1] for k in order]
            models.add(name + "_image", (2, 6, 4, 4 if extents[1] > 1 else 2), nodes + [("Reshape", ["@2", "back"])],
                       {"to": integers(0, *extents), "back": integers(-1, image[0] * image[1] * image[2], *image[3:])})
    models.add("transposed_twice", (2, 8, 2, 3),
               [("Reshape", ["x", "to"]), ("Transpose", ["@1"], {"perm": [0, 2, 1, 4, 3, 5]}),
                ("Reshape", ["@2", "again"]), ("Transpose", ["@3"], {"perm": [0, 4, 3, 2, 1]}),
                ("Reshape", ["@4", "back"])],
               {"to": integers(0, 2, 2, 2, 2, 3), "again": integers(0, 4, 2, 2, 3), "back": integers(0, 6, 4, 2)})
    models.add("shuffle_of_features", (2, 12),
               [("Reshape", ["x", "to"]), ("Transpose", ["@1"], {"perm": [0, 2, 1, 4, 3]}), ("Reshape", ["@2", "back"])],
               {"to": integers(-1, 3, 2, 1, 2), "back": integers(-1, 12)})
    for indices in (1, -1, [0], [2, 0], [1, 2, 2, -3]):
        name = str(indices).strip("[]").replace(", ", "_")
        for axis in (1, 2, 3):
            models.add(f"gather_{axis}_of_{'list' if isinstance(indices, list) else 'one'}_{name}", (2, 3, 4, 5),
                       [("Gather", ["x", "k"], {"axis": axis})],
                       {"k": integers(*indices) if isinstance(indices, list) else integers(indices)[0]})
    models.add("gather_of_features", (2, 7), [("Gather", ["x", "k"], {"axis": 1})], {"k": integers(6, 0, 1, 2)})
    models.add("split_of_columns", (2, 3, 4, 5), [("Split", ["x", "s"], {"axis": 3, "outputs": 2}), ("Neg", ["@1.1"])],
               {"s": integers(2, 3)})


def arithmetic(models):
    """Constants, numbers for each channel, and values of different extents."""
    for operator in ("Add", "Sub", "Mul", "Div"):
        for axis, extents in {"channels": (3, 1, 1), "channels_of_all": (1, 3, 1, 1), "rows": (4, 1), "columns": (5,),
                              "one": (1, 1, 1)}.items():
            low = 0.5 if operator == "Div" else -1.0
            models.add(f"{operator.lower()}_{axis}", (2, 3, 4, 5), [(operator, ["x", "c"])],
                       {"c": reals(*extents, low=low)})
            if operator in ("Add", "Sub", "Mul"):
                models.add(f"{operator.lower()}_{axis}_left", (2, 3, 4, 5), [(operator, ["c", "x"])],
                           {"c": reals(*extents, low=low)})
    models.add("constant_unsqueezed", (2, 3, 4, 5), [("Unsqueeze", ["c", "a"]), ("Mul", ["x", "@1"])],
               {"c": reals(3), "a": integers(1, 2)})
    models.add("constant_unsqueezed_by_attribute", (2, 3, 4, 5), [("Unsqueeze", ["c"], {"axes": [1, 2]}),
                                                                  ("Add", ["x", "@1"])], {"c": reals(3)}, opset=11)
    models.add("constant_reshaped", (2, 3, 4, 5), [("Reshape", ["c", "s"]), ("Mul", ["x", "@1"])],
               {"c": reals(3), "s": integers(1, -1, 1, 1)})
    models.add("constant_multiplied", (2, 3, 4, 5), [("Mul", ["c", "d"]), ("Reshape", ["@1", "s"]), ("Add", ["@2", "x"])],
               {"c": reals(3), "d": reals(1), "s": integers(3, 1, 1)})
    models.add("constant_transposed", (2, 6), [("Transpose", ["w"], {"perm": [1, 0]}), ("MatMul", ["x", "@1"])],
               {"w": reals(4, 6)})
    models.add("constants_in_a_bias", (2, 6), [("Add", ["b", "c"]), ("Gemm", ["x", "w", "@1"], {"transB": 1})],
               {"w": reals(4, 6), "b": reals(4), "c": reals(1)})
    attention = [("ReduceMean", ["x", "a"]), ("ReduceMax", ["x", "a"]), ("Concat", ["@1", "@2"], {"axis": 1}),
                 ("Conv", ["@3", "w"], {"pads": [1, 1, 1, 1]}), ("Sigmoid", ["@4"])]
    constants = {"a": integers(1), "w": reals(1, 2, 3, 3)}
    models.add("spatial_attention", (2, 3, 6, 7), [*attention, ("Mul", ["x", "@5"])], constants)
    models.add("spatial_attention_left", (2, 3, 6, 7), [*attention, ("Mul", ["@5", "x"])], constants)
    models.add("spatial_bias", (2, 3, 6, 7), [*attention, ("Add", ["x", "@5"])], constants)
    models.add("channel_attention", (2, 3, 6, 7),
               [("GlobalAveragePool", ["x"]), ("GlobalMaxPool", ["x"]), ("Sub", ["@1", "@2"]), ("Sigmoid", ["@3"]),
                ("Mul", ["@4", "x"])])
    models.add("value_of_channels_added", (2, 3, 6, 7), [("GlobalAveragePool", ["x"]), ("Add", ["@1", "x"])])
    models.add("rows_and_columns", (2, 3, 4, 5),
               [("ReduceMean", ["x", "r"]), ("ReduceMean", ["x", "c"]), ("Add", ["@1", "@2"])],
               {"r": integers(2), "c": integers(3)})
    for opset, axis in ((7, 1), (11, 1), (11, 2), (11, 3), (12, -1), (13, 1), (13, 2), (20, -1)):
        for operator in ("Softmax", "LogSoftmax"):
            models.add(f"{operator.lower()}_{opset}_{axis}_of_features", (2, 6), [(operator, ["x"], {"axis": 1})],
                       opset=opset)
            # Before version 13 over all axes from this one on: here those behind it are of extent 1.
            shape = {1: (2, 6, 1, 1), 2: (2, 3, 4, 1)}.get(axis, (2, 3, 4, 5)) if opset < 13 else (2, 3, 4, 5)
            models.add(f"{operator.lower()}_{opset}_{axis}", shape, [(operator, ["x"], {"axis": axis})], opset=opset)
    models.add("softmax_default_11", (2, 6, 1, 1), [("Softmax", ["x"])], opset=11)
    for operator in ("ReduceSum", "ReduceMin", "ReduceMax", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceMean"):
        for axes, keeps in (((1,), 1), ((2, 3), 0), ((-1,), 0), ((1, 2), 1)):
            models.add(f"{operator.lower()}_{'_'.join(map(str, axes))}_{keeps}", (2, 3, 4, 5),
                       [(operator, ["x", "a"], {"keepdims": keeps})], {"a": integers(*axes)})


def weights(models):
    """Convolutions, pooling, normalizations and matrices."""
    for name, extents in {"even": (4, 4), "odd": (3, 5), "one": (1, 2)}.items():
        for rule in ("SAME_LOWER", "SAME_UPPER", "VALID"):
            for stride in ([1, 1], [2, 3]):
                tag = f"{name}_{rule.lower()}_{stride[0]}"
                models.add(f"conv_{tag}", (2, 3, 8, 9), [("Conv", ["x", "w"], {"auto_pad": rule, "strides": stride})],
                           {"w": reals(4, 3, *extents)})
                # onnxruntime finds negative padding where a stride is longer than the kernel.
                for operator in ("MaxPool", "AveragePool") if extents[0] >= stride[0] else ():
                    models.add(f"{operator.lower()}_{tag}", (2, 3, 8, 9),
                               [(operator, ["x"], {"auto_pad": rule, "strides": stride, "kernel_shape": extents})])
    for kernel, stride, pads in (([3, 3], [2, 2], [0, 0, 0, 0]), ([3, 3], [2, 2], [1, 1, 1, 1]),
                                 ([2, 3], [3, 2], [1, 0, 0, 1]), ([3, 2], [2, 3], [1, 1, 0, 0]), ([2, 2], [2, 2], [0] * 4)):
        for shape in ((2, 3, 8, 9), (2, 3, 7, 6)):
            tag = "_".join(map(str, (*kernel, *stride, *pads, shape[2])))
            attributes = {"kernel_shape": kernel, "strides": stride, "pads": pads, "ceil_mode": 1}
            models.add(f"maxpool_ceil_{tag}", shape, [("MaxPool", ["x"], dict(attributes))])
            for counted in (0, 1):
                models.add(f"averagepool_ceil_{counted}_{tag}", shape,
                           [("AveragePool", ["x"], {**attributes, "count_include_pad": counted})])
    for shape, kernel, stride, apart, pads, ceil in (((2, 3, 9, 10), [3, 3], [1, 1], [2, 2], [0] * 4, 0),
                                                     ((2, 3, 9, 10), [3, 3], [2, 2], [2, 2], [1] * 4, 1),
                                                     ((2, 3, 9, 10), [2, 3], [3, 2], [4, 1], [0, 1, 1, 0], 1),
                                                     ((2, 3, 9, 10), [1, 2], [2, 1], [3, 5], [0, 0, 0, 1], 0),
                                                     ((2, 3, 9), [3], [2], [3], [1, 1], 1)):
        models.add("maxpool_dilated_" + "_".join(map(str, (*kernel, *stride, *apart))), shape,
                   [("MaxPool", ["x"], {"kernel_shape": kernel, "strides": stride, "dilations": apart, "pads": pads,
                                        "ceil_mode": ceil})])
    statistics = {"s": reals(24), "b": reals(24, low=-2.0), "m": reals(24, low=0.0), "v": reals(24, low=0.5)}
    for node in ("Flatten", "Reshape"):
        models.add(f"batch_normalization_behind_{node.lower()}", (2, 3, 4, 2),
                   [(node, ["x"] if node == "Flatten" else ["x", "to"]),
                    ("BatchNormalization", ["@1", "s", "b", "m", "v"]), ("Gemm", ["@2", "w"])],
                   {**statistics, "w": reals(24, 5), **({"to": integers(0, -1)} if node == "Reshape" else {})})
    models.add("batch_normalization_of_features", (2, 24), [("BatchNormalization", ["x", "s", "b", "m", "v"])], statistics)
    models.add("matmul_of_3_axes", (2, 4, 6), [("MatMul", ["x", "w"])], {"w": reals(6, 5)})
    models.add("matmul_of_4_axes", (2, 3, 4, 6), [("MatMul", ["x", "w"])], {"w": reals(6, 5)})
    models.add("matmul_of_channels_last", (2, 6, 3, 4),
               [("Transpose", ["x"], {"perm": [0, 2, 3, 1]}), ("MatMul", ["@1", "w"]), ("Add", ["@2", "b"]),
                ("Gelu", ["@3"]), ("Transpose", ["@4"], {"perm": [0, 3, 1, 2]})], {"w": reals(6, 5), "b": reals(5)})
    models.add("two_matmuls_of_4_axes", (2, 3, 4, 6), [("MatMul", ["x", "w"]), ("MatMul", ["@1", "v"])],
               {"w": reals(6, 5), "v": reals(5, 7)})
    # A LocalResponseNorm as PyTorch writes it.
    for size in (2, 3, 5):
        models.add(f"local_response_norm_{size}", (2, 6, 4, 5),
                   [("Mul", ["x", "x"]), ("Reshape", ["@1", "to"]), ("Pad", ["@2", "p"]),
                    ("AveragePool", ["@3"], {"kernel_shape": [size, 1, 1], "count_include_pad": 1}),
                    ("Squeeze", ["@4", "a"]), ("Mul", ["@5", "alpha"]), ("Add", ["@6", "k"]), ("Pow", ["@7", "beta"]),
                    ("Div", ["x", "@8"])],
                   {"to": integers(0, 1, 6, 4, 5), "p": integers(0, 0, size // 2, 0, 0, 0, 0, (size - 1) // 2, 0, 0),
                    "a": integers(1), "alpha": reals(1)[0] * 0 + 0.3, "k": reals(1)[0] * 0 + 2, "beta": reals(1)[0] * 0 + 0.75})


def shapes(models):
    """What models compute from the shape of their input; extents that the file leaves open."""
    from onnx import TensorProto, helper

    everything = (0, 2, 3)
    models.add("flatten_of_shape", (2, 3, 4, 5),
               [("Shape", ["x"]), ("Gather", ["@1", "zero"]), ("Unsqueeze", ["@2", "axis"]),
                ("Concat", ["@3", "rest"], {"axis": 0}), ("Reshape", ["x", "@4"])],
               {"zero": integers(0)[0], "axis": integers(0), "rest": integers(-1)}, open_axes=everything)
    models.add("half_of_the_rows", (2, 3, 6, 5),
               [("Shape", ["x"], {"start": 2, "end": 3}), ("Div", ["@1", "two"]), ("Slice", ["x", "zero", "@2", "axis"])],
               {"two": integers(2), "zero": integers(0), "axis": integers(2)}, open_axes=everything)
    models.add("resized_to_the_input", (2, 3, 4, 5),
               [("GlobalAveragePool", ["x"]), ("Shape", ["x"]), ("Resize", ["@1", "", "", "@2"], {"mode": "linear"}),
                ("Add", ["x", "@3"])], open_axes=everything)
    models.add("expanded_to_the_input", (2, 3, 4, 5),
               [("GlobalMaxPool", ["x"]), ("Shape", ["x"]), ("Expand", ["@1", "@2"]), ("Sub", ["x", "@3"])],
               open_axes=everything)
    models.add("expanded_where_the_shape_says", (2, 3, 4, 5),
               [("GlobalMaxPool", ["x"]), ("Equal", ["s", "minus"]), ("Where", ["@2", "ones", "s"]),
                ("Expand", ["@1", "@3"])],
               {"s": integers(-1, -1, 4, 5), "minus": integers(-1), "ones": integers(1, 1, 1, 1)})
    models.add("mean_by_the_number_of_pixels", (2, 3, 4, 5),
               [("ReduceSum", ["x", "a"]), ("Shape", ["x"], {"start": 2}), ("ReduceProd", ["@2"], {"keepdims": 0}),
                ("Cast", ["@3"], {"to": 1}), ("Div", ["@1", "@4"])], {"a": integers(2, 3)}, open_axes=everything)
    # squeeze of PyTorch, where the older exporter does not know the extent.
    for extent in (1, 3):
        branches = {}
        for branch, node in (("then_branch", helper.make_node("Squeeze", ["x", "axes"], ["squeezed"])),
                             ("else_branch", helper.make_node("Identity", ["x"], ["kept"]))):
            output = helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)
            branches[branch] = helper.make_graph([node], branch, [], [output])
        models.add(f"squeezed_if_one_{extent}", (2, extent, 4, 5),
                   [("Shape", ["x"]), ("Gather", ["@1", "one"]), ("Equal", ["@2", "one"]), ("If", ["@3"], branches),
                    ("Neg", ["@4"])], {"one": integers(1)[0], "axes": integers(1)}, open_axes=range(4))
    # as_strided of PyTorch: all elements of the batch, and their indices.
    models.add("elements_in_their_order", (3, 4, 1, 1),
               [("Reshape", ["x", "all"]), ("Shape", ["x"], {"start": 0, "end": 1}), ("Squeeze", ["@2"]),
                ("Range", ["zero", "@3", "one"]), ("Mul", ["@4", "size"]), ("Unsqueeze", ["@5", "axes"]),
                ("Add", ["@6", "first"]), ("Gather", ["@1", "@7"]), ("Neg", ["@8"])],
               {"all": integers(-1), "zero": integers(0)[0], "one": integers(1)[0], "size": integers(4)[0],
                "axes": integers(1, 2, 3), "first": integers(0, 1, 2, 3).reshape(1, 4, 1, 1)})
    models.add("elements_of_a_fixed_batch", (2, 4, 1, 1), [("Reshape", ["x", "all"]), ("Gather", ["@1", "k"]), ("Neg", ["@2"])],
               {"all": integers(-1), "k": integers(*range(8)).reshape(2, 4, 1, 1)}, open_axes=())
    for shape in ((2, 3, 5), (2, 7)):
        models.add(f"open_input_of_{len(shape)}_axes", shape, [("Relu", ["x"])], open_axes=range(len(shape)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--reader", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    check_models.enter_environment(arguments.work)
    warnings.simplefilter("ignore")

    folder = arguments.work / "operator_models"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    models = Models(folder)
    for part in (moved, arithmetic, weights, shapes):
        part(models)
    read = subprocess.run([str(arguments.reader.resolve()), "--results", str(folder)], check=True,
                          stdout=subprocess.PIPE, text=True)
    results = dict(line.split("\t", 1) for line in read.stdout.splitlines())
    if sorted(results) != sorted(models.names):
        sys.exit(f"read_models says nothing of {sorted(set(models.names) - set(results))}")
    wrong = [f"{name}: {result}" for name, result in sorted(results.items())
             if result.startswith("refused") or not float(result) <= TOLERANCE]
    if wrong:
        sys.exit("other outputs than onnxruntime's:\n  " + "\n  ".join(wrong))
    shutil.rmtree(folder)
    print(f"{len(results)} models gave the output of onnxruntime")


if __name__ == "__main__":
    main()
