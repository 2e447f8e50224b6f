"""`make docs`: the pages for people as a site, which needs no network: `python -m rigs.site ZENSICAL FOLDER`.

It has every page that README.md reaches by links, as HTML with a search and as Markdown, the files that these pages
link to, and `llms.txt`. `FOLDER` gets a folder for each version, `versions.json` for the choice among them, and a page
that leads to the newest. Exit code 1 if a link or an anchor leads nowhere.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import unquote, urlsplit

ROOT: Final = Path(__file__).parents[1]
START: Final = "README.md"
INDEX: Final = "docs/README.md"
SECTIONS: Final = {"Guides": "How do I …?", "Reference": "Reference", "Explanation": "Explanation"}
"""Sections of the navigation, and those of the index whose pages they have; a page is in the last that names it."""

FEATURES: Final = ("navigation.footer", "navigation.tabs", "navigation.top", "search.highlight", "content.code.copy")

_LINK: Final = re.compile(r"(?<!\\)\[((?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*)\]\(([^)\s]+)\)")
_FENCE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_FETCHED: Final = re.compile(r'<script src="https?://[^"]*"[^>]*></script>')
_WORKER: Final = """<script>
if (location.protocol === "file:") window.Worker = class extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    const scope = this.scope = frame.contentWindow;
    scope.postMessage = (data) => setTimeout(() => {
      const event = new MessageEvent("message", {data});
      this.onmessage?.(event);
      this.dispatchEvent(event);
    });
    this.ready = new Promise((resolve) => {
      const script = scope.document.createElement("script");
      script.src = url;
      script.onload = resolve;
      scope.document.body.append(script);
    });
  }
  postMessage(data) {
    this.ready.then(() => this.scope.dispatchEvent(new this.scope.MessageEvent("message", {data})));
  }
  terminate() {
    this.scope.frameElement.remove();
  }
};
</script>"""
"""In place of scripts that the generator's pages would fetch. A browser starts no worker for a page that it opens from
a file, so the worker of the search runs in a frame there.
"""
_SLUG: Final = {"object": "pymdownx.slugs.slugify", "kwds": {"case": "lower"}}
"""Anchors as the common forges make them: two blanks are two hyphens."""


def links(text: str) -> Iterator[tuple[str, str]]:
    """The words and the target of each relative link of a page, outside of fenced code."""
    for words, target in _LINK.findall(_FENCE.sub("", text)):
        if not urlsplit(target).scheme and not target.startswith("#"):
            yield words, target


def reached(root: Path) -> tuple[list[str], list[str]]:
    """The pages that links lead to from `START`, and the other files, each relative to `root`.

    Folders and hidden files are left out: they exist in the repository only. Raises `FileNotFoundError`.
    """
    pages, files, waiting = [START], set[str](), [START]
    while waiting:
        page = waiting.pop(0)
        for _, target in links((root / page).read_text("utf-8")):
            path = os.path.normpath(os.path.join(os.path.dirname(page), unquote(target.partition("#")[0])))
            if not (root / path).exists():
                raise FileNotFoundError(f"{page}: {target}")
            if is_in_repository_only(root, path):
                continue
            if not path.endswith(".md"):
                files.add(path)
            elif path not in pages:
                pages.append(path)
                waiting.append(path)
    return pages, sorted(files)


def is_in_repository_only(root: Path, path: str) -> bool:
    """Whether the site links to this path in the repository, since it is a folder or hidden."""
    return (root / path).is_dir() or path.startswith(".")


def staged(root: Path, page: str, repository: str) -> str:
    """The text of a page whose links to folders and hidden files lead to the repository."""
    text = (root / page).read_text("utf-8")
    for _, target in set(links(text)):
        path = os.path.normpath(os.path.join(os.path.dirname(page), target.partition("#")[0]))
        if is_in_repository_only(root, path):
            kind = "tree" if (root / path).is_dir() else "blob"
            text = text.replace(f"]({target})", f"]({repository}/{kind}/main/{path})")
    return text


def title(root: Path, page: str) -> str:
    """The first heading of a page."""
    heading = re.search(r"^# (.+)$", (root / page).read_text("utf-8"), re.MULTILINE)
    return heading[1] if heading else page


def index(root: Path) -> Mapping[str, list[tuple[str, str]]]:
    """The pages of the index by the sections of the navigation, each with what the index says it is for."""
    parts = re.split(r"^## ", (root / INDEX).read_text("utf-8"), flags=re.MULTILINE)
    rows: dict[str, tuple[str, str]] = {}
    for section, heading in SECTIONS.items():
        part = next(part for part in parts if part.startswith(heading))
        for line in re.findall(r"^\| (.*) \|$", part, re.MULTILINE):
            words = next(cell for cell in line.split(" | ") if not cell.startswith("["))
            for _, target in links(line):
                path = os.path.normpath(f"docs/{target.partition('#')[0]}")
                if path.endswith(".md") and "#" not in target:
                    rows[path] = section, words
    return {name: [(path, words) for path, (section, words) in rows.items() if section == name] for name in SECTIONS}


def llms_txt(root: Path, name: str, description: str) -> str:
    """The site for language models, by llmstxt.org: a heading, what the project is, and the pages by sections."""
    lines = [f"# {name}", "", f"> {description}", "", f"- [README]({START}): what it does and how to begin"]
    for section, pages in index(root).items():
        lines += ["", f"## {section}", ""]
        lines += [f"- [{title(root, page)}]({page}): {_plain(words)}" for page, words in pages]
    return "\n".join(lines) + "\n"


def _plain(words: str) -> str:
    return _LINK.sub(r"\1", words).replace("`", "")


def settings(root: Path, name: str, description: str) -> Mapping[str, object]:
    """The configuration of the generator."""
    nav: list[Mapping[str, object]] = [{"Start": [START, INDEX]}]
    nav += [{section: [page for page, _ in pages]} for section, pages in index(root).items()]
    nav += [{"Project": ["CONTRIBUTING.md", "CHANGELOG.md"]}]
    theme = {
        **{"features": list(FEATURES), "font": False},
        "palette": [
            {"media": "(prefers-color-scheme: light)", "scheme": "default"},
            {"media": "(prefers-color-scheme: dark)", "scheme": "slate"},
        ],
    }
    extensions = ["tables", "attr_list", "pymdownx.highlight", "pymdownx.superfences"]
    return {
        **{"site_name": name, "site_description": description, "docs_dir": "pages"},
        **{"use_directory_urls": False, "nav": nav, "theme": theme, "plugins": ["offline", "search"]},
        "extra": {"version": {"provider": "mike"}, "generator": False},
        "markdown_extensions": [*extensions, {"toc": {"permalink": True, "slugify": _SLUG}}],
    }


def build(root: Path, generator: str, folder: Path, project: Mapping[str, str]) -> int:
    """Builds the site of this version into `folder`; the number of its pages. Raises `CalledProcessError`."""
    version = ".".join(project["version"].split(".")[:2])
    with TemporaryDirectory() as scratch:
        work = Path(scratch)
        pages, files = reached(root)
        for path in (*pages, *files):
            (work / "pages" / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / path, work / "pages" / path)
        for page in pages:
            (work / "pages" / page).write_text(staged(root, page, project["repository"]), "utf-8")
        configuration = settings(root, project["name"], project["description"])
        (work / "mkdocs.yml").write_text(json.dumps(configuration), "utf-8")  # JSON is YAML
        line = [os.path.abspath(generator), "build", "--strict", "--clean"]
        subprocess.run(line, cwd=work, check=True, env={**os.environ, "NO_COLOR": "1"})
        for file in (work / "site").rglob("*.html"):
            file.write_text(_FETCHED.sub(lambda _: _WORKER, file.read_text("utf-8")), "utf-8")
        shutil.rmtree(folder / version, ignore_errors=True)
        shutil.copytree(work / "site", folder / version)
        for page in pages:
            (folder / version / page).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(work / "pages" / page, folder / version / page)
    (folder / version / "llms.txt").write_text(llms_txt(root, project["name"], project["description"]), "utf-8")
    write_versions(folder)
    return len(pages)


def write_versions(folder: Path) -> None:
    """The list for the choice of a version, newest first, and the page that leads to the newest."""
    versions = sorted((path.name for path in folder.iterdir() if path.is_dir()), key=_order, reverse=True)
    newest, *_ = versions
    listed = [{"version": name, "title": name, "aliases": ["latest"] if name == newest else []} for name in versions]
    (folder / "versions.json").write_text(json.dumps(listed, indent=1), "utf-8")
    redirect = f'<!doctype html><meta http-equiv="refresh" content="0; url={newest}/index.html">'
    (folder / "index.html").write_text(f'{redirect}<a href="{newest}/index.html">{newest}</a>\n', "utf-8")


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def facts(root: Path) -> Mapping[str, str]:
    """What the site says of the project, from `pyproject.toml`."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    return {
        **{key: project[key] for key in ("name", "version", "description")},
        "repository": project["urls"]["Repository"],
    }


def main(generator: str, folder: Path) -> int:
    """Builds the site and says where it is; the exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        count = build(ROOT, generator, folder, facts(ROOT))
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        print(f"docs: {error}", file=sys.stderr)
        return 1
    print(f"{count} pages in {folder}: open {folder / 'index.html'}, or serve the folder to choose among versions")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
