# SPDX-License-Identifier: BSL-1.0
"""The prose of a source file: comments, messages, names of tests, paragraphs. Each block is one text with its lines."""

import io
import re
import tokenize

C_FAMILY = {".hpp", ".cpp", ".cuh", ".cu", ".h", ".c", ".inc"}
# Folders whose string literals are messages of the library and its programs.
MESSAGE_FOLDERS = ("include/", "bench/", "examples/")


class Block:
    """Text on consecutive lines. Code in backticks and links is left out; white space is single."""

    def __init__(self):
        self.text = ""
        self.lines = []  # of each character

    def add(self, piece, line):
        piece = re.sub(r"`[^`]*`", " CODE ", piece)
        piece = re.sub(r"\]\([^)]*\)|https?://\S+", "]", piece)
        for word in piece.split():
            if self.text:
                self.text += " "
                self.lines.append(line)
            self.text += word
            self.lines.extend([line] * len(word))

    def line_of(self, at):
        return self.lines[at]


def blocks_of_lines(rows):
    """rows: (line number, text, whether it continues the row before). Blank text ends a block."""
    block = Block()
    for number, text, joined in rows:
        if not joined or not text.strip():
            if block.text:
                yield block
            block = Block()
        block.add(text, number)
    if block.text:
        yield block


def without_backticks_across(rows):
    """Inline code that begins on one line and ends on the next is taken out of both."""
    rows = list(rows)
    open_code = False
    result = []
    for number, text, joined in rows:
        if not joined:
            open_code = False
        if open_code and "`" in text:
            text = text[text.index("`") + 1 :]
            open_code = False
        elif open_code:
            text = ""
        if text.count("`") % 2 == 1:
            text = text[: text.rindex("`")] + "CODE"
            open_code = True
        result.append((number, text, joined))
    return result


def markdown(text):
    rows = []
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("```"):
            fenced = not fenced
            rows.append((number, "", False))
        elif fenced or line.startswith("    ") and not rows[-1][1].strip():
            rows.append((number, "", False))
        elif stripped.startswith("|"):
            for cell in stripped.strip("|").split("|"):
                rows.append((number, cell, False))
        else:
            starts = re.match(r"\s*([*+-]|\d+\.|#+|>)\s", line) is not None or stripped.startswith("**")
            rows.append((number, re.sub(r"^\s*([*+-]|\d+\.|#+|>)\s+", "", line).replace("**", ""), not starts))
    yield from blocks_of_lines(without_backticks_across(rows))


def c_tokens(text):
    """('comment' or 'string', line, text) of a C++ file."""
    i, line, size = 0, 1, len(text)
    while i < size:
        two = text[i : i + 2]
        if two == "//":
            end = text.find("\n", i)
            end = size if end < 0 else end
            yield "comment", line, text[i:end]
            i = end
        elif two == "/*":
            end = text.find("*/", i + 2)
            end = size if end < 0 else end + 2
            for offset, row in enumerate(text[i:end].split("\n")):
                yield "comment", line + offset, row
            line += text.count("\n", i, end)
            i = end
        elif two == 'R"' and not text[i - 1 : i].isalnum():
            close = ")" + text[i + 2 : text.index("(", i)] + '"'
            end = text.find(close, i)
            end = size if end < 0 else end + len(close)
            line += text.count("\n", i, end)
            i = end
        elif text[i] == '"' or (text[i] == "'" and not text[i - 1 : i].isalnum()):
            end = i + 1
            while end < size and text[end] != text[i] and text[end] != "\n":
                end += 2 if text[end] == "\\" else 1
            if text[i] == '"':
                yield "string", line, text[i + 1 : end]
            i = end + 1
        else:
            line += text[i] == "\n"
            i += 1


def c_family(text, with_messages):
    rows = []
    code = []  # doxygen blocks of code
    last = -9
    last_string = -9
    messages = []
    for kind, line, piece in c_tokens(text):
        if kind == "comment":
            words = re.sub(r"^(//[/!]?<?|/\*+!?<?|\s*\*(?!\*))|\*/$", "", piece)
            if re.search(r"[@\\](code|verbatim)\b", words):
                code.append(line)
            if code:
                if re.search(r"[@\\]end(code|verbatim)\b", words):
                    code.clear()
                rows.append((line, "", False))
            else:
                starts = re.match(r"\s*([@\\]\w+|\*|-|\d+\.)\s", words) is not None
                rows.append((line, words, line == last + 1 and not starts))
            last = line
        elif with_messages:
            joined = line - 1 == last_string
            messages.append((line, re.sub(r"\\.", " ", piece), joined))
            last_string = line
    yield from blocks_of_lines(without_backticks_across(rows))
    yield from blocks_of_lines(messages)
    for match in re.finditer(r"\bBOOST_\w*TEST_(?:CASE|SUITE)\w*\s*\(\s*(\w+)", text):
        block = Block()
        block.add(match.group(1).replace("_", " "), text.count("\n", 0, match.start()) + 1)
        yield block


def python(text):
    rows = []
    last = -9
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            rows.append((token.start[0], token.string.lstrip("#! "), token.start[0] == last + 1))
            last = token.start[0]
    yield from blocks_of_lines(without_backticks_across(rows))
    docs = []
    for match in re.finditer(r'(?:^|\n)[ \t]*"""(.*?)"""', text, re.DOTALL):
        first = text.count("\n", 0, match.start(1)) + 1
        for offset, row in enumerate(match.group(1).split("\n")):
            docs.append((first + offset, row, offset != 0))
    yield from blocks_of_lines(without_backticks_across(docs))


def comment_after_hash(line):
    """What follows a # that stands outside of quotes, first on the line or after white space; None if none does."""
    quote = ""
    i = 0
    while i < len(line):
        if quote:
            i += quote == '"' and line[i] == "\\"
            quote = "" if line[i : i + 1] == quote else quote
        elif line[i] in "\"'":
            quote = line[i]
        elif line[i] == "\\":
            i += 1
        elif line[i] == "#" and (i == 0 or line[i - 1].isspace()):
            return line[i + 1 :]
        i += 1
    return None


def hash_comments(text):
    """CMake, shell, YAML: comments that begin with #."""
    rows = []
    last = -9
    for number, line in enumerate(text.splitlines(), 1):
        comment = None if line.startswith("#!") else comment_after_hash(line)
        if comment is not None:
            rows.append((number, comment, number == last + 1))
            last = number
    yield from blocks_of_lines(without_backticks_across(rows))


def javascript(text):
    rows = []
    last = -9
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"^(?:.*\s)?//\s(.*)$", line)
        if match:
            rows.append((number, match.group(1), number == last + 1))
            last = number
    yield from blocks_of_lines(without_backticks_across(rows))


def test_name(path):
    """The tests in these folders are called as their files are."""
    if re.fullmatch(r"tests/(?:compile_fail|distributed|conformance/\w+|property/\w+|unit/\w+)/\w+\.cpp", path):
        block = Block()
        block.add(path.rsplit("/", 1)[-1].rsplit(".", 1)[0].replace("_", " "), 1)
        yield block


def blocks(path, text):
    """All prose of a file. path: relative to the root, with /; text: its contents."""
    name = path.rsplit("/", 1)[-1]
    suffix = "." + name.rsplit(".", 1)[1] if "." in name[1:] else ""
    if suffix == ".md":
        yield from markdown(text)
    elif suffix in C_FAMILY:
        yield from test_name(path)
        yield from c_family(text, path.startswith(MESSAGE_FOLDERS))
    elif suffix == ".py" or text.startswith("#!") and "python" in text.split("\n", 1)[0]:
        yield from python(text)
    elif suffix in (".cmake", ".sh") or name == "CMakeLists.txt" or text.startswith("#!") or name in (".clang-tidy",):
        yield from hash_comments(text)
    elif suffix in (".js", ".css"):
        yield from javascript(text)
