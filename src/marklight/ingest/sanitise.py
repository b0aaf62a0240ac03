"""HTML out of documents, made harmless: only what reads as text is left, and links that were looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import nh3

INSIDE = "marklight"
"""The scheme of links to documents of the library: `marklight:guide/auth.md#expiry`."""
PREFIX = "part-"
"""Before every id: `<a id="forms">` in a document must not become `document.forms` of a page."""

_TEXT = frozenset(
    "a abbr b bdi blockquote br caption cite code col colgroup dd del details dfn div dl dt em figcaption "
    "figure h1 h2 h3 h4 h5 h6 hr i img ins kbd li mark ol p pre q rp rt ruby s samp small span strong sub "
    "summary sup table tbody td tfoot th thead time tr u ul var wbr".split()
)
_SILENT = frozenset(
    "script style template noscript noembed noframes iframe object embed applet svg math title textarea xmp "
    "select option plaintext audio video canvas frameset".split()
)
"""What stands in these is no text of the document, and some of them are parsed by rules of their own."""
_ATTRIBUTES = {
    "*": {"id", "title", "lang", "dir", "data-lines", "data-plain"},
    "a": {"href"},
    "img": {"alt"},  # never where it is: nothing is loaded because a document says so
    "ol": {"start"},
    "td": {"align", "colspan", "rowspan"},
    "th": {"align", "colspan", "rowspan", "scope"},
    "details": {"open"},
    "time": {"datetime"},
}


def sanitise(html: str, relative: Callable[[str], str | None]) -> str:
    """The same text without anything that runs, loads, sends or looks like a part of the page around it.

    `relative` says where an address without a scheme leads; None takes the link away.
    """
    return _cleaner(relative).clean(html)


def _cleaner(relative: Callable[[str], str | None]) -> nh3.Cleaner:
    import nh3

    return nh3.Cleaner(
        tags=set(_TEXT),
        clean_content_tags=set(_SILENT),
        attributes={tag: set(names) for tag, names in _ATTRIBUTES.items()},
        url_schemes={"http", "https", "mailto", INSIDE},
        url_relative=relative,
        link_rel="noopener noreferrer",
        set_tag_attribute_values={"a": {"target": "_blank"}},
        id_prefix=PREFIX,
        strip_comments=True,
    )
