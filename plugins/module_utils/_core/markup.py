# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text for XML and HTML: what may not stand in a document is replaced, the rest escaped."""

from __future__ import annotations

import json
import re
from typing import Any, Mapping
from xml.sax.saxutils import escape as xml_escape

# Everything that XML 1.0 does not allow, so that a log line with control characters spoils no report.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean(value: Any) -> str:
    """The value as text in which every character may stand in a document."""
    return _FORBIDDEN.sub("\ufffd", value if isinstance(value, str) else show(value))


def show(value: Any) -> str:
    """A value of the evidence for a reader: lists with commas, nothing as a dash."""
    if value is None or value == "" or value == []:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(show(item) for item in value)
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    return str(value)


def text(value: Any) -> str:
    """The value as the content of an element."""
    return xml_escape(clean(value))


def attribute(value: Any) -> str:
    """The value as an attribute, with quotes around it."""
    escaped = xml_escape(clean(value), {'"': "&quot;", "\n": "&#10;", "\t": "&#9;", "\r": "&#13;"})
    return f'"{escaped}"'


def element(name: str, content: str = "", **attributes: Any) -> str:
    """An element around content that is markup already; C(class_) becomes class, C(data_x) data-x.

    Attributes that are None are left out.
    """
    words = [name]
    for key, value in attributes.items():
        if value is not None:
            words.append(f"{key.rstrip('_').replace('_', '-')}={attribute(value)}")
    return f"<{' '.join(words)}>{content}</{name}>"


def seconds(value: Any) -> str:
    """A time for a reader: 0.41 s, 12.3 s, 3 min 05 s."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return "–"
    if number < 10:
        return f"{number:.2f} s"
    if number < 100:
        return f"{number:.1f} s"
    whole = round(number)
    return f"{whole // 60} min {whole % 60:02d} s"
