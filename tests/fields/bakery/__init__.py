"""A site like Wagtail's bakerydemo: pages, tags, clusters, generic relations."""
