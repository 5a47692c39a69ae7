# SPDX-License-Identifier: BSL-1.0
"""check_functions.py ROOT NM LIBRARY ELEMENT... -- OBJECT...: what a library that was compiled once contains.

Every function that headers define with GRADUS_INLINE is a weak symbol of the library, and a constructor or destructor
with GRADUS_INLINE_CONSTRUCTOR is there in both variants, for complete objects and for bases. Otherwise programs that only
declare them would not link. The library has a file for each element type: that of float has the functions, and each has
the networks, trainers and layers of its own type only. The objects of programs that link the library have no layers and
none of these functions. (Members that are defined in their class are inline: a program may have a copy of its own.)"""

import collections
import pathlib
import re
import subprocess
import sys

DEFINITION = re.compile(r"\b(GRADUS_INLINE(?:_CONSTRUCTOR)?)\b([^;{]*?)((?:\b\w+::)*~?(?:operator\s*[^\w\s(]+|operator\s*\(\)|\w+))\s*\(",
                        re.DOTALL)
FUNCTION = re.compile(r"W ((?:\w+::)*(?:operator\(\)|operator[^\w\s(]+|~?\w+))(?:\[abi:cxx11\])?\(")
NETWORK = r"gradus::nn::network<([\w:]+), gradus::\w+, gradus::cpu>"
# The kinds of instances, and the symbols of their functions; each names its element type.
INSTANCES = {
    "network": re.compile(rf"W {NETWORK}::"),
    "trainer": re.compile(rf"W gradus::train::trainer<{NETWORK} ?>::"),
    "layer": re.compile(r"W gradus::nn::detail::made_layer<[^>]*> gradus::nn::detail::make_layer<gradus::nn::conv2d, ([\w:]+),"),
}


def defined(headers):
    """{function with its namespace: how many symbols it has at least}"""
    functions = collections.Counter()
    for path in sorted(headers.rglob("*.hpp")):
        text = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
        namespace = ""
        for part in re.finditer(rf"^namespace ([\w:]+) \{{$|{DEFINITION.pattern}", text, re.DOTALL | re.MULTILINE):
            if part[1]:
                namespace = part[1]
            elif not text[text.rfind("\n", 0, part.start()) + 1 :].startswith("#"):
                functions[f"{namespace}::{part[4]}"] += 2 if part[2] == "GRADUS_INLINE_CONSTRUCTOR" else 1
    return functions


def symbols(nm, path):
    """{file of the library, or the object: the symbols that it defines, as nm writes them without the address}"""
    lines = subprocess.run([nm, "-C", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    found = collections.defaultdict(list)
    name = pathlib.Path(path).name
    for line in lines.splitlines():
        heading = re.fullmatch(r"(\S+):", line)
        if heading:
            name = heading[1]
        elif re.match(r"[0-9a-f]+ ", line):
            found[name].append(line.split(" ", 1)[1])
    return found


def functions_of(lines):
    """{function: how many symbols it has}; a lambda's symbol begins with the name of its function"""
    return collections.Counter(match[1] for match in map(FUNCTION.match, lines) if match and ")::" not in match.string)


def instances_of(lines):
    """{(kind of instance, element type)}"""
    return {(kind, match[1]) for kind, pattern in INSTANCES.items() for match in map(pattern.match, lines) if match}


def complaints(expected, elements, library, objects):
    files = {element: [name for name in library if re.match(rf"{element}\.", name)] for element in elements}
    for element, names in files.items():
        if len(names) != 1:
            yield f"expected one file of {element} in the library, got {names or 'none'}"
            return
    found = functions_of(library[files["float"][0]])
    for name, count in sorted(expected.items()):
        if found[name] < count:
            yield f"{name}: expected {count} weak symbols, got {found[name]}"
    once = {name for name, count in expected.items() if found[name] == count}  # without an overload that is inline
    for element in elements:
        name = files[element][0]
        own = {(kind, element if element in ("float", "double") else f"gradus::{element}") for kind in INSTANCES}
        instances = instances_of(library[name])
        if instances != own:
            yield f"{name}: expected the instances {sorted(own)}, got {sorted(instances)}"
        repeated = sorted(set(functions_of(library[name])) & once) if element != "float" else []
        if repeated:
            yield f"{name}: has functions that are in the file of float: {', '.join(repeated[:5])}"
    for name, lines in objects.items():
        repeated = sorted(set(functions_of(lines)) & once)
        layers = sorted(element for kind, element in instances_of(lines) if kind == "layer")
        if layers or repeated:
            yield f"{name}: has what is compiled once: layers of {layers or 'no type'}, {', '.join(repeated[:5])}"


def main():
    separator = sys.argv.index("--")
    root, nm, library, *elements = sys.argv[1:separator]
    objects = {path: lines for path in sys.argv[separator + 1 :] for lines in symbols(nm, path).values()}
    expected = defined(pathlib.Path(root) / "include" / "gradus")
    found = list(complaints(expected, elements, symbols(nm, library), objects))
    print("\n".join(found))
    print(f"{len(expected)} functions, {len(elements)} element types, {len(objects)} objects; {len(found)} complaints")
    if not expected or not objects or found:
        print("gradus/compiled.hpp includes the header of each function, and the macro of the definition is the right one "
              "(gradus/core/compiled.hpp)")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
