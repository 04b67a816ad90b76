"""Hooks of the documentation site: what its pages need beyond the Markdown that repository viewers show."""
import re

OUTSIDE = re.compile(r"\]\((?:\.\./)+((?:README|CONTRIBUTING|CHANGELOG|SECURITY)\.md|LICENSE|csrc/[^)#]*|tests/[^)#]*)")


def on_page_markdown(markdown, *, page, config, **_context):
    """Return the page with links to files outside docs/ turned to the repository, and with anchors of its rows."""
    markdown = OUTSIDE.sub(lambda link: f"]({config.repo_url.rstrip('/')}/blob/main/{link[1]}", markdown)
    path = page.file.src_uri
    if path == "differences.md":
        markdown = re.sub(r"^\| `([a-z0-9-]+)`", r'| <a id="\1"></a>`\1`', markdown, flags=re.M)
    if path.startswith("api/oneflow"):
        module = path.removeprefix("api/").removesuffix(".md")
        markdown = re.sub(r"^### `(.+)`$", rf"### `\1` {{ #{module}.\1 }}", markdown, flags=re.M)
    return markdown
