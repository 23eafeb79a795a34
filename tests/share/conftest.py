"""The browser that pages are opened in."""

from browser_helpers import browser  # noqa: F401
