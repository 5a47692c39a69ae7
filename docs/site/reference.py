# SPDX-License-Identifier: BSL-1.0
"""Pages of the reference, in Markdown, from the XML that Doxygen writes: one for each public header and one for each
module. Called by scripts/docs."""

import collections
import html
import pathlib
import re
import textwrap
import xml.etree.ElementTree as ElementTree

KINDS = {"class": "Classes", "struct": "Classes", "concept": "Concepts", "function": "Functions",
         "variable": "Constants", "enum": "Enumerations", "typedef": "Types", "define": "Macros"}
HIDDEN = ("detail::", "::detail")


class Reference:
    def __init__(self, xml):
        self.compounds = {}
        self.headers = collections.defaultdict(list)  # header: [(kind, name, element)]
        self.files = {}  # header: its file element
        self.places = {}  # identity in Doxygen's XML: (header, anchor)
        for path in sorted(pathlib.Path(xml).glob("*.xml")):
            for compound in ElementTree.parse(path).getroot().iter("compounddef"):
                self.add(compound)

    def add(self, compound):
        kind, name = compound.get("kind"), compound.findtext("compoundname")
        if kind == "file":
            location = compound.find("location")
            self.files[location.get("file")] = compound
            self.add_members(compound, ("define",))
        elif kind == "namespace":
            self.add_members(compound, ("function", "variable", "enum", "typedef"))
        elif kind in ("class", "struct", "concept") and not any(part in name for part in HIDDEN):
            self.compounds[compound.get("id")] = compound
            self.place(kind, name, compound)
            for member in compound.iter("memberdef"):
                header = compound.find("location").get("file")
                self.places[member.get("id")] = (header, anchor(name))

    def add_members(self, owner, kinds):
        for member in owner.iter("memberdef"):
            name = member.findtext("qualifiedname") or member.findtext("name")
            if member.get("kind") in kinds and not any(part in name for part in HIDDEN) and documented(member):
                self.place(member.get("kind"), name, member)

    def place(self, kind, name, element):
        header = element.find("location").get("file")
        self.headers[header].append((kind, name, element))
        self.places[element.get("id")] = (header, anchor(name))

    # Text

    def text(self, element, page):
        """A description as Markdown."""
        if element is None:
            return ""
        blocks = [self.block(child, page) for child in element if child.tag in ("para", "sect1")]
        return "\n\n".join(block for block in blocks if block.strip())

    def block(self, para, page):
        parts, line = [], [plain(para.text)]

        def flush():
            if "".join(line).strip():
                parts.append("".join(line).strip())
            line.clear()

        for child in para:
            if child.tag in ("para", "sect1"):
                flush()
                parts.append(self.block(child, page))
            elif child.tag == "parameterlist":
                flush()
                parts.append(self.parameters(child, page))
            elif child.tag == "simplesect":
                flush()
                parts.append(f"**{child.get('kind').capitalize()}:** {self.text(child, page)}")
            elif child.tag in ("itemizedlist", "orderedlist"):
                flush()
                mark = "1." if child.tag == "orderedlist" else "*"
                items = [self.text(item, page).replace("\n", "\n    ") for item in child.iter("listitem")]
                parts.append("\n".join(f"{mark}   {item}" for item in items))
            elif child.tag == "programlisting":
                flush()
                code = "\n".join("".join(" " if part.tag == "sp" else part.text or "" for part in walk(row))
                                 for row in child.iter("codeline"))
                parts.append(f"```cpp\n{code.rstrip()}\n```")
            elif child.tag in ("verbatim", "preformatted"):
                flush()
                text = re.sub(r"(?m)^\s*///", "", child.text or "")
                parts.append(f"```cpp\n{textwrap.dedent(text.strip(chr(10))).rstrip()}\n```")
            else:
                line.append(self.inline(child, page))
            line.append(plain(child.tail))
        flush()
        return "\n\n".join(parts)

    def inline(self, element, page):
        inner = plain(element.text) + "".join(self.inline(child, page) + plain(child.tail) for child in element)
        if element.tag == "ref":
            return self.link(element.get("refid"), inner, page)
        if element.tag == "computeroutput":
            return f"`{''.join(element.itertext())}`"
        if element.tag in ("bold", "emphasis"):
            return f"*{inner}*"
        return {"ndash": "-", "mdash": "-", "linebreak": "<br>", "sp": " "}.get(element.tag, inner)

    def link(self, identity, inner, page):
        header, target = self.places.get(identity, (None, None))
        if header is None or not inner.strip() or "`" in inner:
            return inner
        return f"[{inner}]({relative(page_of(header), page)}#{target})"

    def parameters(self, element, page):
        title = {"param": "Parameters", "templateparam": "Template parameters", "exception": "Throws",
                 "retval": "Returns"}.get(element.get("kind"), element.get("kind"))
        rows = []
        for item in element.iter("parameteritem"):
            names = ", ".join(f"`{''.join(name.itertext())}`" for name in item.iter("parametername"))
            rows.append(f"* {names}: {' '.join(self.text(item.find('parameterdescription'), page).split())}")
        return f"**{title}**\n\n" + "\n".join(rows)

    def description(self, element, page):
        parts = [self.text(element.find(tag), page) for tag in ("briefdescription", "detaileddescription")]
        return "\n\n".join(part for part in parts if part.strip())

    # Pages

    def header_page(self, header):
        page = page_of(header)
        lines = [f"# {header}", "", "```cpp", f"#include <{header}>", "```", ""]
        if header in self.files:
            lines += [self.description(self.files[header], page), ""]
        entries = collections.defaultdict(list)
        for kind, name, element in self.headers[header]:
            entries[KINDS[kind]].append((name, element))
        for title in dict.fromkeys(KINDS.values()):
            if entries[title]:
                lines += [f"## {title}", ""]
            groups = collections.defaultdict(list)
            for name, element in entries[title]:
                groups[name].append(element)
            for name, elements in groups.items():  # the overloads of a function together
                lines += [f"### {plain(name)} {{ #{anchor(name)} }}", ""]
                for element in elements:
                    lines += ["```cpp", declaration(element), "```", "", self.description(element, page), ""]
                    lines += self.members(element, page)
        return "\n".join(lines) + "\n"

    def members(self, element, page):
        """What a class has: its members with their docstrings; of an enumeration the values."""
        lines = []
        for value in element.findall("enumvalue"):
            brief = " ".join(self.description(value, page).split())
            lines.append(f"* `{value.findtext('name')}`: {brief}")
        for member in element.iter("memberdef"):
            if member is element or member.get("prot") == "private" or not documented(member):
                continue
            lines += ["```cpp", declaration(member), "```", "", self.description(member, page), ""]
        return lines + [""]

    def pages(self):
        """Path and text of each page, and the modules."""
        modules = collections.defaultdict(list)
        result = {}
        for header in sorted(self.headers):
            result[page_of(header)] = self.header_page(header)
            parts = header.split("/")
            modules[parts[1] if len(parts) > 2 else "gradus"].append(header)
        for module, headers in sorted(modules.items()):
            page = f"reference/{module}/index.md"
            lines = [f"# Module {module}", "", "| header | what it has |", "|---|---|"]
            for header in headers:
                names = list(dict.fromkeys(name.split("::")[-1] for _, name, _ in self.headers[header]))
                shown = ", ".join(f"`{name}`" for name in names[:6]) + (", ..." if len(names) > 6 else "")
                lines.append(f"| [{header}]({relative(page_of(header), page)}) | {shown} |")
            result[page] = "\n".join(lines) + "\n"
        index = ["# Reference", "", "Every public header, by module.", ""]
        index += [f"* [{module}]({module}/index.md): {len(headers)} headers" for module, headers in sorted(modules.items())]
        result["reference/index.md"] = "\n".join(index) + "\n"
        return result, sorted(modules)


def documented(member):
    return any("".join(member.find(tag).itertext()).strip() for tag in ("briefdescription", "detaileddescription")
               if member.find(tag) is not None)


def plain(text):
    """Text in Markdown: nothing in it is markup."""
    return re.sub(r"([*_<>|\[\]])", lambda found: html.escape(found[0]) if found[0] in "<>" else "\\" + found[0], text or "")


def walk(row):
    for part in row.iter():
        if part.tag in ("highlight", "sp", "ref"):
            yield part
        if part.tag in ("sp", "ref", "highlight") and part.tail and part.tag != "highlight":
            yield type("text", (), {"tag": "text", "text": part.tail})


def declaration(element):
    """As in C++, without the namespace."""
    parameters = element.find("templateparamlist")
    lines = []
    if parameters is not None:
        each = []
        for parameter in parameters.findall("param"):
            words = "".join(parameter.find("type").itertext())
            name = parameter.findtext("declname")
            default = parameter.find("defval")
            each.append(words + (f" {name}" if name else "") + (f" = {''.join(default.itertext())}" if default is not None else ""))
        lines.append(f"template <{', '.join(each)}>")
    clause = element.find("requiresclause")
    if clause is not None:
        lines.append(f"requires {''.join(clause.itertext())}")
    kind = element.get("kind")
    name = element.findtext("name") or element.findtext("compoundname").split("::")[-1]
    kind_of = "".join(element.find("type").itertext()) if element.find("type") is not None else ""
    if kind in ("class", "struct"):
        lines.append(f"{kind} {name};")
    elif kind == "concept":
        return " ".join("".join(element.find("initializer").itertext()).split()) if element.find("initializer") is not None else f"concept {name}"
    elif kind == "function":
        lines.append(wrapped(f"{kind_of} {name}{element.findtext('argsstring') or ''};".strip()))
    elif kind == "enum":
        lines.append(f"enum class {name};")
    elif kind == "typedef":
        lines.append(f"using {name} = {' '.join(kind_of.split())};")
    elif kind == "define":
        names = [parameter.findtext("defname") or "" for parameter in element.findall("param")]
        lines.append(f"#define {name}" + (f"({', '.join(names)})" if names else ""))
    else:
        initializer = element.find("initializer")
        value = " " + " ".join("".join(initializer.itertext()).split()) if initializer is not None else ""
        lines.append(f"{kind_of} {name}{value};")
    return "\n".join(lines)


def wrapped(line, most=90):
    """A long declaration with each parameter on a line."""
    begin = line.find("(")
    if len(line) <= most or begin < 0:
        return line
    depth, start, parts = 0, begin + 1, []
    for i in range(begin + 1, len(line)):
        depth += (line[i] in "(<{[") - (line[i] in ")>}]")
        if depth < 0 or (depth == 0 and line[i] == ","):
            parts.append(line[start:i].strip())
            start = i + 1
            if depth < 0:
                return line[:begin + 1] + "\n    " + ",\n    ".join(parts) + line[i:]
    return line


def anchor(name):
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def page_of(header):
    parts = header.split("/")
    module = parts[1] if len(parts) > 2 else "gradus"
    return f"reference/{module}/{'_'.join(parts[2:] or parts[1:]).replace('.', '_')}.md"


def relative(target, page):
    ups = len(pathlib.PurePosixPath(page).parent.parts)
    return "../" * ups + target
