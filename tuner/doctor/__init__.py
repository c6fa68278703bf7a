"""The seven mistakes of memory and batch optimization, each looked for in what a study has measured."""
