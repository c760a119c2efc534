"""Fetch metadata documents of clients from a local server."""

import os

from django_mcp.oauth.client_metadata_documents import MCPMetadataFetcher

PUBLIC_ADDRESS = "93.184.216.34"


class Fetcher(MCPMetadataFetcher):
    """Every host is in public; lines to it end at the port ``SITE_DOCUMENTS``. The rest is real."""

    def addresses(self, host, port):
        return super().addresses(PUBLIC_ADDRESS, port)

    def connect(self, address, port, seconds):
        return super().connect("127.0.0.1", int(os.environ["SITE_DOCUMENTS"]), seconds)
