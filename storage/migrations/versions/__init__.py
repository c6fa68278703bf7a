"""One file a revision, named by its number; :data:`storage.schema.REVISIONS` lists them."""
