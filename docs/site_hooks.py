"""Hooks of the documentation site: what its pages need beyond the Markdown that repository viewers show."""
import re
from pathlib import Path

SHIM = "https://unpkg.com/iframe-worker/shim"  # with it, search works in pages that were opened from a folder
WIDE_PAGES = ("differences.md", "performance.md")  # their tables need the width of the side bars
OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+((?:README|CONTRIBUTING|CHANGELOG|SECURITY)\.md|LICENSE|csrc/[^)#]*|tests/[^)#]*)(?:#[^)]*)?\)")


def on_config(config):
    """Put the generated API pages into the navigation, under their index."""
    pages = sorted(path.name for path in Path(config.docs_dir, "api").glob("oneflow*.md"))
    for section in config.nav:
        for entries in section.values():
            for entry in entries if isinstance(entries, list) else ():
                if isinstance(entry, dict) and entry.get("API") == "api/README.md":
                    entry["API"] = ["api/README.md", *({name.removesuffix(".md"): f"api/{name}"} for name in pages)]
    return config


def on_page_markdown(markdown, *, page, **_context):
    """Return the page with paths instead of links to files outside docs/, and with anchors of its rows."""
    markdown = OUTSIDE.sub(lambda link: link[1] if link[2] in link[1] else f"{link[1]} (`{link[2]}`)", markdown)
    path = page.file.src_uri
    if path in WIDE_PAGES:
        page.meta["hide"] = ["navigation", "toc"]
    if path == "differences.md":
        markdown = re.sub(r"^\| `([A-Za-z0-9-]+)`", r'| <a id="\1"></a>`\1`', markdown, flags=re.M)
    if path.startswith("api/oneflow"):
        module = path.removeprefix("api/").removesuffix(".md")
        markdown = re.sub(r"^### `(.+)`$", rf"### `\1` {{ #{module}.\1 }}", markdown, flags=re.M)
    return markdown


def on_post_page(output, *, page, **_context):
    """Return the page with the theme's one script of another host replaced by the copy in assets/."""
    return output.replace(SHIM, "../" * page.file.dest_uri.count("/") + "assets/iframe-worker.js")


def on_post_template(output_content, *, template_name, **_context):
    """Do the same for the page of missing addresses."""
    return output_content.replace(SHIM, "/assets/iframe-worker.js")
