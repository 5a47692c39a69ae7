#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""check_headers.py must go red: each change below, made to a good tree, has to give the complaint beside it."""

import pathlib
import sys
import tempfile

import check_headers

TABLE = """# Contributing

| module | may include |
|---|---|
| `core` | the standard library |
| `layout`, `device` | core |
| `tensor` | layout, device |
| `comm` | core, device |
| `data` | tensor |
| `train` | data |

An annex is a folder for what some programs need.

| annex | may include |
|---|---|
| `sim` | data |
| `pipeline` | train |
"""

CONTRIBUTING = "../../CONTRIBUTING.md"  # from include/gradus

GOOD = {
    CONTRIBUTING: TABLE,
    "core/error.hpp": "#include <string>\n",
    "layout/layouts.hpp": '#include "gradus/core/error.hpp"\n',
    "device/cpu.hpp": '#include "gradus/core/error.hpp"\nnamespace gradus { class cpu final : public device { int id; }; }\n',
    "tensor/tensor.hpp": '#include "gradus/layout/layouts.hpp"\n'
    '#include "gradus/core/error.hpp"  // through layout\n',
    "comm/communicator.hpp": '#include "gradus/device/cpu.hpp"\n'
    "namespace gradus { class cpu; }\n"
    "namespace gradus::comm {\ntemplate <class Element>\nstruct group { int size = 1; };\n}\n",
    "comm/mpi.hpp": '#include <mpi.h>\n#include "gradus/comm/communicator.hpp"\n',
    "data/dataset.hpp": '#include "gradus/device/cpu.hpp"  // through tensor\n',
    "gradus.hpp": '#include "gradus/tensor/tensor.hpp"\n#include "gradus/comm/communicator.hpp"\n',
    "pipeline/schedule.hpp": '#include "gradus/train/detail/state/access.hpp"\n',
    "pipeline.hpp": '#include "gradus/pipeline/schedule.hpp"\n',
    "sim/cluster.hpp": '#include "gradus/core/error.hpp"\n#include "gradus/sim/detail/replay/replay.hpp"\n',
    "sim/detail/replay/replay.hpp": '#include "gradus/core/error.hpp"\n',
    "sim.hpp": '#include "gradus/sim/cluster.hpp"\n',
    "train/detail/state/access.hpp": '#include "gradus/core/error.hpp"\n',
    "compiled.hpp": '#include "gradus/pipeline/schedule.hpp"\n#include "gradus/gradus.hpp"\n',
    "comm/threads.hpp": '#include "gradus/device/cpu.hpp"\n'
    "#define GRADUS_COLD [[gnu::cold]]  // GRADUS_COLD\n" + "GRADUS_COLD void a();\n" * 80,
}

BAD = [
    ("core/error.hpp", '#include "gradus/tensor/tensor.hpp"\n', "'core' may not include 'tensor'"),
    ("layout/layouts.hpp", '#include "gradus/device/cpu.hpp"\n', "'layout' may not include 'device'"),
    ("comm/communicator.hpp", '# include "gradus/tensor/tensor.hpp"\n', "'comm' may not include 'tensor'"),
    ("tensor/tensor.hpp", '#include "gradus/gradus.hpp"\n', "'tensor' may not include 'gradus/gradus.hpp'"),
    ("data/dataset.hpp", '#include "gradus/comm/communicator.hpp"\n', "'data' may not include 'comm'"),
    ("comm/communicator.hpp", '#include "gradus/comm/mpi.hpp"\n', "belongs to the component 'mpi'"),
    ("gradus.hpp", '#include "gradus/comm/mpi.hpp"\n', "belongs to the component 'mpi'"),
    ("core/error.hpp", "#include <mpi.h>\n", "only the component 'mpi' may include <mpi.h>"),
    ("data/dataset.hpp", "#include <zlib.h>\n", "only the component 'gzip' may include <zlib.h>"),
    ("core/error.hpp", '#include "gradus/core/absent.hpp"\n', "does not exist"),
    ("core/error.hpp", '#include "gradus/core/error.hpp"\n', "cycle: gradus/core/error.hpp"),
    ("core/error.hpp", '#include "error_impl.hpp"\n', "write the path from include/"),
    ("tensor/tensor.hpp", "#include <gradus/core/error.hpp>\n", "included with quotes"),
    ("data/dataset.hpp", '#include "gradus/sim/cluster.hpp"\n', "'data' may not include 'sim'"),
    ("data/dataset.hpp", '#include "gradus/sim.hpp"\n', "'data' may not include 'sim'"),
    ("gradus.hpp", '#include "gradus/sim/cluster.hpp"\n', "'gradus/gradus.hpp' may not include 'sim'"),
    ("gradus.hpp", '#include "gradus/pipeline.hpp"\n', "'gradus/gradus.hpp' may not include 'pipeline'"),
    ("gradus.hpp", '#include "gradus/compiled.hpp"\n', "cycle: gradus/compiled.hpp"),
    ("sim/cluster.hpp", '#include "gradus/pipeline/schedule.hpp"\n', "'sim' may not include 'pipeline'"),
    ("sim/cluster.hpp", '#include "gradus/data/detail/csv/table.hpp"\n', "may not include the private header"),
    ("sim/timeline.hpp", '#include "gradus/core/error.hpp"\n', "gradus/sim.hpp, the door of the annex, does not include it"),
    (CONTRIBUTING, "| `onnx` | tensor |\n", "gradus/onnx.hpp: the door of the annex is missing"),
    (CONTRIBUTING, "\n| module | may include |\n|---|---|\n| `data` | sim |\n",
     "the row of 'data', a module of the house, names the annex 'sim'"),
    ("core/error.hpp", "//\n" * 900, "split it"),
    ("wrong/thing.hpp", "", "is not a module"),
    ("wrong.hpp", "", "is not a module"),
    ("core/error.hpp", '#include "gradus/data.hpp"\n', "'core' may not include 'data'"),
    ("core/thing.cpp", "int x;\n", "only .hpp and .cuh"),
    ("device/cpu.hpp", "#pragma once\nstd::vector<int> sizes;\n", "std::vector: include its header"),
    ("device/cpu.hpp", "#pragma once\n#include <vector>\nstd::vector<int> sizes;\n", "name it in the comment"),
    ("device/cpu.hpp", "#pragma once\n#include <vector>  // std::span\nstd::vector<int> sizes;\n", "std::vector: include"),
    ("core/error.hpp", "namespace gradus { class cpu; }\n", "'core' may not know 'device', and names its gradus::cpu"),
    ("layout/layouts.hpp", "namespace gradus::comm { template <class Element>\nstruct group; }\n",
     "'layout' may not know 'comm', and names its gradus::comm::group"),
    ("core/error.hpp", "#define GRADUS_ALL(name) \\\n  class name<::gradus::cpu>;\n", "names its gradus::cpu"),
    ("data/dataset.hpp", "inline int size = ::gradus::comm::group<float>::size;\n", "names its gradus::comm::group"),
    ("data/dataset.hpp", "GRADUS_COMPILED_CLASS(reader)\n", "gradus/compiled.hpp does not include it"),
    ("data/dataset.hpp", "#ifdef GRADUS_HAS_DEFINITIONS\nGRADUS_COLD GRADUS_INLINE void read() {}\n#endif\n",
     "GRADUS_INLINE, and gradus/compiled.hpp does not include it"),
    ("data/dataset.hpp", "GRADUS_INLINE void read() {}\n", "stands between #ifdef GRADUS_HAS_DEFINITIONS"),
    ("core/error.hpp", "#pragma once\n", "refuses compilers that are too old"),
    ("layout/layouts.hpp", "#pragma once\nEigen::Index columns;\n", "Eigen is used and not included"),
    ("core/text.hpp", "namespace gradus::detail { int size = 1; }\n", "declares private names only"),
    ("core/detail/text/text.hpp", "namespace gradus { struct text {}; }\n", "a public name in a folder 'detail'"),
    ("core/detail/text.hpp", "namespace gradus::detail { int size = 1; }\n", "stands in detail/IDEA/"),
    ("device/cpu.hpp", '#include "gradus/core/detail/text/text.hpp"\n', "may not include the private header"),
    ("device/cpu.hpp", "GRADUS_NEVER_INLINE void b();\n", "81 uses of GRADUS_COLD"),
    ("device/cpu.hpp", 'void b(double x) { std::snprintf(t, 9, "%g", x); }\n', "snprintf follows the locale"),
    ("device/cpu.hpp", "double b(char* x) { return strtod(x, nullptr); }\n", "strtod follows the locale"),
    ("device/cpu.hpp", 'void b() { printf("%d, "\n"%5.1f", 1, 2.5); }\n', "printf of a real number follows the locale"),
]


def complaints_of(tree):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in tree.items():
            path = root / "include" / "gradus" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return check_headers.check(root)[1]


def main():
    failures = 0
    for complaint in complaints_of(GOOD):
        print(f"the good tree is refused: {complaint}")
        failures += 1
    for name, text, expected in BAD:
        found = complaints_of({**GOOD, name: GOOD.get(name, "") + text})
        if not any(expected in complaint for complaint in found):
            print(f"{name} with {text[:60]!r}: expected a complaint with {expected!r}, got {found}")
            failures += 1
    print(f"{len(BAD) + 1} trees, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
