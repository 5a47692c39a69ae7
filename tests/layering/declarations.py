# SPDX-License-Identifier: BSL-1.0
"""The declarations of a C++ header at namespace scope, found by counting braces."""

import re


def without_comments(text):
    """The text without comments; literals are empty."""
    out = []
    i = 0
    while i < len(text):
        if text.startswith("//", i):
            end = text.find("\n", i)
            i = len(text) if end < 0 else end
        elif text.startswith("/*", i):
            end = text.index("*/", i) + 2
            out.append("\n" * text.count("\n", i, end))
            i = end
        elif text.startswith('R"', i):
            delimiter = text[i + 2 : text.index("(", i)]
            out.append('""')
            i = text.index(")" + delimiter + '"', i) + len(delimiter) + 2
        elif text[i] == '"' or (text[i] == "'" and not text[i - 1 : i].isalnum()):
            quote = text[i]
            i += 1
            while text[i] != quote:
                i += 2 if text[i] == "\\" else 1
            out.append(quote + quote)
            i += 1
        else:
            out.append(text[i])
            i += 1
    return "".join(out)


def end_of_braces(text, begin):
    depth = 0
    for i in range(begin, len(text)):
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return i + 1
    raise ValueError("braces that do not close")


def without_directives(text):
    """The text without comments and directives of the preprocessor; literals are empty."""
    return re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", "", without_comments(text), flags=re.MULTILINE)


def declarations(text):
    """[(namespace, declaration)] of a header; bodies are written {}, forward declarations are left out."""
    text = without_directives(text)
    found = []
    namespaces = []
    current = ""
    i = 0

    def finish():
        nonlocal current
        declared = " ".join(current.split())
        if declared and not re.fullmatch(r"(template\s*<[^{}]*>\s*)?(class|struct)\s+\w+", declared):
            found.append(("::".join(namespaces), declared))
        current = ""

    while i < len(text):
        if text[i] == "{":
            namespace = re.search(r"\bnamespace\s*([\w:]*)\s*$", current)
            if namespace:
                namespaces.append(namespace.group(1))
                current = ""
                i += 1
                continue
            i = end_of_braces(text, i)
            current += "{}"
            follows = text[i:].lstrip()[:1]
            if follows not in tuple(";(,.{=&|") and not re.search(r"=\s*[^;]*\{\}$", current):
                finish()
            continue
        if text[i] == "}":
            finish()
            namespaces.pop()
        elif text[i] == ";":
            finish()
        else:
            current += text[i]
        i += 1
    return found


def classes(text):
    """The names of classes at namespace scope: those that the header only declares, and those that it defines."""
    text = without_directives(text)
    declared, defined = set(), set()
    namespaces = []
    current = ""
    i = 0
    while i < len(text):
        if text[i] == "{":
            namespace = re.search(r"\bnamespace\s*([\w:]*)\s*$", current)
            named = re.search(r"(?<!\benum )\b(?:class|struct)\s+(\w+)\s*(?:final\s*)?(?::[^:].*)?$", current, re.DOTALL)
            if namespace:
                namespaces.append(namespace.group(1))
                current = ""
                i += 1
                continue
            if named:
                defined.add("::".join([*namespaces, named.group(1)]))
            i = end_of_braces(text, i)
            current = ""
            continue
        if text[i] == "}":
            namespaces.pop()
            current = ""
        elif text[i] == ";":
            named = re.fullmatch(r"\s*(?:template\s*<.*>\s*)?(?:class|struct)\s+(\w+)\s*", current, re.DOTALL)
            if named:
                declared.add("::".join([*namespaces, named.group(1)]))
            current = ""
        else:
            current += text[i]
        i += 1
    return declared, defined


def qualified_names(text):
    """The names gradus::... that a header writes, in its macros too."""
    return set(re.findall(r"\bgradus(?:::\w+)+", without_comments(text)))


def is_detail(namespace):
    return "detail" in namespace.split("::")


def public_and_private(text):
    """The declarations of the library in namespaces that users see, and those in namespaces `detail`."""
    ours = [(namespace, text) for namespace, text in declarations(text) if namespace.startswith("gradus")]
    public = [text for namespace, text in ours if not is_detail(namespace)]
    return public, [text for namespace, text in ours if is_detail(namespace)]
