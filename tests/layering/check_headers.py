#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Checks who includes whom in a source tree: check_headers.py ROOT

The tables of modules and annexes are those of CONTRIBUTING.md: a module may include what stands in its row and what
those modules may include. Nor does a header declare or name a class of another module, in its macros either. Further
rules:

The house, which is all modules that are no annexes and gradus/gradus.hpp, includes no annex. Each annex has a door,
gradus/ANNEX.hpp, from which every public header of the annex is reached.

Third-party headers of an optional component, and the component's own headers, are included only by that component.
Included files exist. There are no cycles between headers. No header is longer than 800 lines. A header that declares
only names in namespaces `detail` is in a folder `detail/IDEA/`, nothing public is there, and no module includes such a
header of another module. A header includes what it uses of the standard library or of Eigen: a name `std::x` comes from
a header after which some include of the tree has it in its comment, as in `#include <span>  // std::span`. Every header
includes another one of the library, so that the first that is read to its end is core/config.hpp, which refuses
compilers that are too old. No header and no program calls a function that follows the locale: numbers are written by
format_text and print_text and read by read_number (gradus/core/format.hpp). All headers together use GRADUS_COLD and GRADUS_NEVER_INLINE at most
MOST_INLINING_ATTRIBUTES times.
"""

import pathlib
import re
import sys

from declarations import classes, public_and_private, qualified_names

LONGEST_HEADER = 800  # lines
HOUSE = "gradus/gradus.hpp"  # it may include every module of the house
UMBRELLAS = (HOUSE, "gradus/compiled.hpp")  # the second may include annexes too: it compiles what they share
FIRST_HEADER = "gradus/core/config.hpp"  # the only one that includes no other
MOST_INLINING_ATTRIBUTES = 80  # uses of GRADUS_COLD and GRADUS_NEVER_INLINE

# component: (its headers, the third-party headers that only they may include)
COMPONENTS = {
    "mpi": (r"gradus/comm/(detail/)?mpi[^/]*(/.*)?\.hpp", r"mpi\.h"),
    "gzip": (r"gradus/((data|trace)/gzip|data/record_file)[^/]*\.hpp", r"zlib\.h"),
    "jpeg": (r"gradus/data/jpeg[^/]*\.hpp", r"turbojpeg\.h"),
    "png": (r"gradus/data/png[^/]*\.hpp", r"png\.h"),
    "onnx": (r"gradus/onnx(/.*)?\.hpp", r"protozero/.*"),
    "nvtx": (r"gradus/trace/nvtx[^/]*\.hpp", r"nvtx3/.*"),
    "cuda": (r"gradus/(device/cuda|kernels/cuda).*|gradus/.*\.cuh", r"cud.*|cub/.*|thrust/.*|cublas.*"),
    "nccl": (r"gradus/comm/(detail/)?nccl.*", r"nccl\.h|cud.*"),
}
# module: another one, classes of which its headers may declare; a strategy names the execution that it needs
DECLARES = {"parallel": "train"}
USES = {"nccl": {"cuda"}}  # component: others whose headers it may include

# Private headers of the house that annexes may include: what a trainer has to save, and how it computes.
OPEN_TO_ANNEXES = ("gradus/train/detail/state/access.hpp", "gradus/train/detail/trainer/loop.hpp")

def module_of(header):
    """The module of a header. A header of the name of a module beside its folder is the door of an annex."""
    if header in UMBRELLAS:
        return None
    parts = header.split("/")
    return parts[1] if len(parts) > 2 else parts[1].removesuffix(".hpp")


def read_tables(contributing):
    """The rows of both tables, {module: modules that it may include directly}, and the names of the annexes."""
    rows = {}
    annexes = set()
    table = None
    for line in contributing.read_text().splitlines():
        head = re.match(r"\|\s*(module|annex)\s*\|\s*may include\s*\|", line)
        if head:
            table = head.group(1)
        elif not line.startswith("|"):
            table = None
        elif table and not re.match(r"\|[-| ]+\|$", line):
            modules, allowed = [cell.strip() for cell in line.strip("|").split("|")[:2]]
            allowed = [] if allowed == "the standard library" else [word.strip(" `") for word in allowed.split(",")]
            for module in modules.split(","):
                rows[module.strip(" `")] = allowed
                if table == "annex":
                    annexes.add(module.strip(" `"))
    if not rows:
        sys.exit(f"{contributing}: no table of modules")
    for module, allowed in rows.items():
        for other in allowed:
            if other not in rows:
                sys.exit(f"{contributing}: the row of '{module}' names '{other}', which has no row")
    return rows, annexes


def reachable(rows, module):
    """Everything that a module may include, itself too."""
    found = {module}
    pending = [module]
    while pending:
        for other in rows[pending.pop()]:
            if other not in found:
                found.add(other)
                pending.append(other)
    return found


def closed_to(annexes, rows, graph):
    """Complaints about rows of the house that name an annex, and about annexes without a door to all that is public."""
    for module, allowed in rows.items():
        for annex in sorted(annexes.intersection(allowed)):
            if module not in annexes:
                yield f"CONTRIBUTING.md: the row of '{module}', a module of the house, names the annex '{annex}'"
    for annex in sorted(annexes):
        door = f"gradus/{annex}.hpp"
        if door not in graph:
            yield f"{door}: the door of the annex is missing"
            continue
        reached = headers_of(graph, door)
        for header in graph:
            if header.startswith(f"gradus/{annex}/") and "/detail/" not in header and header not in reached:
                yield f"{header}: {door}, the door of the annex, does not include it"


def headers_of(graph, header):
    """A header and all that it includes, also through others."""
    reached = set()
    waiting = [header]
    while waiting:
        each = waiting.pop()
        if each not in reached and each in graph:
            reached.add(each)
            waiting += graph[each]
    return reached


def component_of(header):
    for name, (own, _) in COMPONENTS.items():
        if re.fullmatch(own, header):
            return name
    return None


def standard_names(text):
    """The names after std:: in a piece of text: of std::chrono::seconds, chrono. All memory orders belong to atomic."""
    return set(re.findall(r"\bstd::(\w+)", re.sub(r"memory_order_\w+", "atomic", text)))


def missing_includes(texts):
    """Names of the standard library, and Eigen, that a header uses and does not include. texts: {header: its text}"""
    provided = {}  # header of the standard library: names
    included = {}
    for header, text in texts.items():
        lines = re.findall(r"^\s*#\s*include\s*<([\w/.]+)>(.*)$", text, re.MULTILINE)
        included[header] = {target for target, _ in lines}
        for target, comment in lines:
            provided.setdefault(target, set()).update(standard_names(comment))
    for header, text in texts.items():
        if not re.search(r"^#pragma once", text, re.MULTILINE):
            continue  # included into another header
        code = re.sub(r'"(?:\\.|[^"\\\n])*"', '""', re.sub(r"//[^\n]*", "", text))
        for name in sorted(standard_names(code)):
            if not any(name in provided[target] for target in included[header]):
                yield f"{header}: std::{name}: include its header, and name it in the comment of the include"
        if "Eigen::" in code and not any(target.startswith("Eigen/") for target in included[header]):
            yield f"{header}: Eigen is used and not included"


def too_many_attributes(texts):
    """A complaint if the headers use the macros against inlining too often. texts: {header: its text}"""
    uses = {}
    for header, text in texts.items():
        code = re.sub(r"//[^\n]*|^\s*#\s*define[^\n]*", "", text, flags=re.MULTILINE)
        uses[header] = len(re.findall(r"\bGRADUS_(?:COLD|NEVER_INLINE)\b", code))
    total = sum(uses.values())
    if total > MOST_INLINING_ATTRIBUTES:
        most = sorted(uses, key=lambda header: (-uses[header], header))[:3]
        yield (
            f"{total} uses of GRADUS_COLD and GRADUS_NEVER_INLINE; at most {MOST_INLINING_ATTRIBUTES}: keep those with "
            "which train_mnist compiles to less code, and remove the one that saves least before you add one "
            f"(docs/design/compile_time.md). Most uses: {', '.join(f'{header} {uses[header]}' for header in most)}"
        )


# What writes or reads numbers as the locale has them.
OF_LOCALE = re.compile(
    r"\b(?:std::|::)?((?:v?s|v?sn)printf|v?s?scanf|strto(?:d|f|ld)|ato[f]|sto(?:d|f|ld)|"
    r"put_money|get_money|setprecision|stringstream|istringstream)\s*[({<]"
)
PRINTS = re.compile(r"\b(?:std::)?f?printf\s*\((?:(?!\)\s*;).)*?%[-+ #0-9.*]*[aAeEfFgG]", re.DOTALL)


def calls_that_follow_the_locale(text):
    """(line, name) of each call that writes or reads numbers as the locale has them."""
    code = re.sub(r"//[^\n]*", "", text)
    found = [(match.start(), match.group(1)) for match in OF_LOCALE.finditer(code)]
    found += [(match.start(), "printf of a real number") for match in PRINTS.finditer(code)]
    return [(code.count("\n", 0, start) + 1, name) for start, name in sorted(found)]


def not_compiled(texts, graph):
    """Headers whose instances or functions gradus/compiled.hpp does not define: programs that declare them would not
    link."""
    reached = headers_of(graph, "gradus/compiled.hpp")
    compiled = re.compile(r"^GRADUS_(COMPILED|INSTANCE|EACH)_?\w*\(|^(?!#).*\bGRADUS_INLINE(_CONSTRUCTOR)?\b",
                          re.MULTILINE)
    return [
        f"{header}: has instances or GRADUS_INLINE, and gradus/compiled.hpp does not include it"
        for header, text in texts.items()
        if compiled.search(re.sub(r"//[^\n]*", "", text)) and header not in reached
    ]


def outside_of_definitions(texts):
    """Complaints about functions with GRADUS_INLINE that a file with separate compilation would read, too."""
    for header, text in texts.items():
        open_blocks = []
        for number, line in enumerate(re.sub(r"//[^\n]*", "", text).splitlines(), 1):
            directive = re.match(r"\s*#\s*(if\w*|else|elif\w*|endif|define)\b\s*(\w*)", line)
            if directive is None:
                if re.search(r"\bGRADUS_INLINE(_CONSTRUCTOR)?\b", line) and "GRADUS_HAS_DEFINITIONS" not in open_blocks:
                    yield f"{header}:{number}: GRADUS_INLINE stands between #ifdef GRADUS_HAS_DEFINITIONS and #endif"
            elif directive.group(1) == "endif":
                open_blocks.pop()
            elif directive.group(1) == "ifdef":
                open_blocks.append(directive.group(2))
            elif directive.group(1) in ("if", "ifndef"):
                open_blocks.append("")
            elif directive.group(1) != "define":
                open_blocks[-1] = ""


def names_of_others(texts, rows):
    """Complaints about classes that headers declare or name although they belong to a module that they may not include."""
    of_header = {header: classes(text) for header, text in texts.items()}
    modules = {}  # class: the modules that define it
    for header, (_, defined) in of_header.items():
        for name in defined:
            modules.setdefault(name, set()).add(module_of(header))
    for header, text in texts.items():
        module = module_of(header)
        if module not in rows:
            continue
        allowed = {*reachable(rows, module), DECLARES.get(module)}
        names = set(of_header[header][0])
        for words in (name.split("::") for name in qualified_names(text)):
            beginnings = ("::".join(words[:length]) for length in range(len(words), 1, -1))
            names.update([name for name in beginnings if name in modules][:1])
        for name in sorted(names):
            others = modules.get(name, allowed)
            if not allowed & others:
                yield f"{header}: '{module}' may not know '{', '.join(sorted(others))}', and names its {name}"


def follow_the_locale(root):
    """Complaints about the headers and the programs that are installed or documented."""
    folders = [root / "include", root / "examples", root / "test_package"]
    folders += [root / "bench" / name for name in ("driver", "model", "program", "report", "run")]
    for path in sorted(path for folder in folders for path in folder.rglob("*") if path.is_file()):
        if path.suffix in (".hpp", ".cuh", ".cpp", ".cu"):
            for line, name in calls_that_follow_the_locale(path.read_text()):
                if "printf of" in name and "examples" in path.parts:
                    continue  # what a reader knows
                yield (
                    f"{path.relative_to(root)}:{line}: {name} follows the locale: use format_text, print_text or "
                    "read_number (gradus/core/format.hpp)"
                )


def check(root):
    complaints = []
    rows, annexes = read_tables(root / "CONTRIBUTING.md")
    include = root / "include"
    graph = {}
    files = sorted(path for path in include.rglob("*") if path.is_file())
    for path in files:
        header = path.relative_to(include).as_posix()
        if header == "gradus_c.h":  # the interface for C: tests/interfaces
            continue
        if path.suffix not in (".hpp", ".cuh"):
            complaints.append(f"{header}: only .hpp and .cuh files belong here")
            continue
        parts = header.split("/")
        umbrella = header in UMBRELLAS
        module = module_of(header)
        if not umbrella and module not in rows:
            complaints.append(f"{header}: the folder is not a module of CONTRIBUTING.md")
            continue
        if umbrella:
            allowed = {*rows, None} - (annexes if header == HOUSE else set())
        else:
            allowed = reachable(rows, module)
        lines = path.read_text().splitlines()
        if len(lines) > LONGEST_HEADER:
            complaints.append(f"{header}: {len(lines)} lines; at most {LONGEST_HEADER}: split it")
        graph[header] = []
        in_detail = "detail" in parts[:-1]
        public, private = public_and_private(path.read_text())
        if in_detail and public:
            complaints.append(f"{header}: a public name in a folder 'detail': {public[0][:80]}")
        if in_detail and not re.search(r"/detail/\w+/", "/" + header):
            complaints.append(f"{header}: a private header stands in detail/IDEA/, not in detail/")
        if not in_detail and private and not public:
            complaints.append(f"{header}: declares private names only: it belongs into {module}/detail/IDEA/")
        for number, line in enumerate(lines, 1):
            match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
            if match is None:
                continue
            mark, target = match.groups()
            place = f"{header}:{number}"
            if not target.startswith("gradus/"):
                if mark == '"':
                    complaints.append(f"{place}: \"{target}\": write the path from include/, \"gradus/...\"")
                own = component_of(header)
                owners = [name for name, (_, theirs) in COMPONENTS.items() if re.fullmatch(theirs, target)]
                if owners and own not in owners:
                    complaints.append(f"{place}: only the component '{owners[0]}' may include <{target}>")
                continue
            if mark == "<":
                complaints.append(f"{place}: <{target}>: headers of the library are included with quotes")
            if not (include / target).is_file():
                complaints.append(f"{place}: {target} does not exist")
            target_module = module_of(target)
            if target_module not in allowed:
                complaints.append(f"{place}: '{module or header}' may not include '{target_module or target}' ({target})")
            component = component_of(target)
            own = component_of(header)
            if (component is not None and own != component and component not in USES.get(own, ())
                    and header != "gradus/compiled.hpp"):
                complaints.append(f"{place}: {target} belongs to the component '{component}': include it by choice")
            open_header = module in annexes and target in OPEN_TO_ANNEXES
            if "/detail/" in target and target_module != module and not open_header:
                complaints.append(f"{place}: '{module}' may not include the private header {target}")
            graph[header].append(target)
        if not graph[header] and header != FIRST_HEADER and "#pragma once" in lines:
            complaints.append(f"{header}: include \"{FIRST_HEADER}\", which refuses compilers that are too old")

    texts = {header: (include / header).read_text() for header in graph}
    complaints += missing_includes(texts)
    complaints += too_many_attributes(texts)
    complaints += not_compiled(texts, graph)
    complaints += names_of_others(texts, rows)
    complaints += closed_to(annexes, rows, graph)
    complaints += outside_of_definitions(texts)
    complaints += follow_the_locale(root)
    finished = set()

    def visit(header, path):
        if header in path:
            cycle = path[path.index(header) :] + [header]
            complaints.append("cycle: " + " -> ".join(cycle))
        elif header not in finished:
            for target in graph.get(header, []):
                visit(target, path + [header])
            finished.add(header)

    for header in graph:
        visit(header, [])
    if not graph:
        complaints.append(f"{include}: no headers")
    return len(graph), complaints


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    count, complaints = check(pathlib.Path(sys.argv[1]))
    for complaint in complaints:
        print(complaint)
    print(f"{count} headers, {len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
