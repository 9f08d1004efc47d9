"""Documents to text, part by part: PDF pages, chapters and sections of DOCX, EPUB, HTML and Markdown.

A converter takes an open file and yields pieces of text; the first piece of a page, chapter or section is a
`Piece` whose `source` names it. Converters run in a process of their own (see `isolated`).
"""
