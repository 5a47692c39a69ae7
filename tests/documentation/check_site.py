# SPDX-License-Identifier: BSL-1.0
"""check_site.py ROOT WORK: builds the site by scripts/docs and looks at its pages.

MkDocs fails on a link or an anchor that is not there. Ends with 77 (skipped) without Doxygen or PyPI.
"""

import html
import json
import pathlib
import re
import subprocess
import sys


def main():
    root, work = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    built = subprocess.run([str(root / "scripts/docs"), "--output", str(work)], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True)
    print(built.stdout)
    if built.returncode != 0:
        return built.returncode
    site = work / "site"
    pages = {path.relative_to(site).as_posix(): path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    errors = []

    def expect(condition, complaint):
        if not condition:
            errors.append(complaint)

    headers = {path.relative_to(root / "include").as_posix() for path in (root / "include").rglob("*")
               if path.suffix in (".hpp", ".cuh") and "detail" not in path.parts}
    reference = {name: text for name, text in pages.items() if name.startswith("reference/")}
    shown = {html.unescape(found) for text in reference.values() for found in re.findall(r"<h1[^>]*>(gradus/[^<]+)<", text)}
    without = headers - shown
    # A header that only includes others, or has nothing but a deduction guide, has no page.
    expect(len(without) < len(headers) // 8, f"{len(without)} of {len(headers)} public headers have no page: {sorted(without)}")
    expect(shown <= headers, f"pages of headers that are not public: {sorted(shown - headers)}")
    sgd = reference.get("reference/optim/sgd_hpp.html", "")
    for text in ("momentum", "in [0, 1); 0 keeps no velocities", "gradus::optim::sgd"):
        expect(text in sgd, f"the page of gradus/optim/sgd.hpp does not have '{text}'")
    formula = re.findall(r"<code>(.*?)</code>", sgd, re.DOTALL)
    expect(any("weight_decay" in re.sub("<[^>]+>", "", code) and "<-" in html.unescape(re.sub("<[^>]+>", "", code))
               for code in formula), "the formula of sgd is not shown line by line")
    expect(not any("///" in re.sub("<[^>]+>", "", text) for text in reference.values()), "a page shows the marks of comments")
    guides = {path.stem for path in (root / "docs").glob("*.md")} - {"README"}
    expect(guides <= {pathlib.PurePosixPath(name).stem for name in pages}, "a guide is not in the site")
    navigation = pages["index.html"]
    for guide in guides:
        expect(f'href="{guide}.html"' in navigation, f"the navigation has no {guide}: list it in docs/README.md")
    for name, text in pages.items():
        for source in re.findall(r'<img [^>]*?src="([^":]+)"', text):
            expect((site / name).parent.joinpath(source).is_file(), f"{name} shows '{source}', which is not there")
    found = {entry["location"].split("#")[0] for entry in json.loads((site / "search/search_index.json").read_text())["docs"]}
    expect({"reference/optim/sgd_hpp.html", "tensors.html"} <= found, "the search does not know the guides or the reference")
    print("\n".join(errors))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
