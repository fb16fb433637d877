"""The reader of reStructuredText: markup of docutils, and roles and directives of Sphinx."""

from tests.support.documents import one

PAGE = b"""
.. _install:

Install *the* tool
==================

:program:`tool` needs :ref:`Python 3.11 <python>`; see :class:`~pkg.mod.Thing`, :py:meth:`!run` and
:rfc:`9457`.

.. A comment.

.. warning::

   Use ``--force`` once.

.. versionchanged:: 3.2
   Quick by default.

Options
-------

.. option:: --limit N

   At most *N* rows.

.. code-block:: python
   :linenos:
   :emphasize-lines: 1

   print("hi")

=====  =======
Name   Meaning
=====  =======
alpha  first
beta   second
=====  =======

.. grid-item-card:: Plans
   :columns: 6

   Basic costs 5 euros.

.. toctree::

   secret

.. include:: /etc/hostname

.. raw:: html

   <b>raw</b>
"""


def test_text_of_docutils_and_sphinx_is_read() -> None:
    document = one(PAGE, "install.rst")
    assert document.title == "Install the tool"
    assert document.media_type == "text/x-rst"
    assert document.warnings == ()
    assert document.text.split("\n\n") == [
        "# Install the tool",
        "tool needs Python 3.11; see Thing, run and RFC 9457.",
        "Warning",
        "Use --force once.",
        "Changed in version 3.2 Quick by default.",
        "## Options",
        "--limit N",
        "At most N rows.",
        '```\nprint("hi")\n```',
        "Name: alpha; Meaning: first",
        "Name: beta; Meaning: second",
        "Plans",
        "Basic costs 5 euros.",
    ]


def test_errors_keep_their_text() -> None:
    text = b"Broken ``code, a |name|, `link`_ and *stars.\n\n.. note:: Kept.\n  odd\n\n==== ==\nA    B\n"
    read = " ".join(one(text, "a.rst").text.split())
    for kept in ("Broken ``code, a |name|, `link`_ and *stars.", "Kept. odd", "==== == A B"):
        assert kept in read


def test_deep_lists_stay_as_they_are() -> None:
    text = "".join(f"{' ' * depth}* item {depth}\n\n" for depth in range(600))
    document = one(text.encode(), "deep.rst")
    assert "item 599" in document.text
    assert document.warnings == (
        "The markup of the reStructuredText could not be read; the text is stored with it.",
    )


def test_upload_with_media_type_is_read() -> None:
    assert one(b"Title\n=====\n\nText.", "upload", "text/x-rst").text == "# Title\n\nText."
