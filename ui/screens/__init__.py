"""One file a page: it only calls and draws. ``ui/app.py`` lists them."""
