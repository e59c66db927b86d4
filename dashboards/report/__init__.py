"""A report on runs, with figures for papers: as a page, as Markdown, or as a folder of both"""
