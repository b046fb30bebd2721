"""Token sequences as nodes of a tree: two hypotheses have the same tokens exactly if they have the same node.

Nothing here needs torch, so that a runtime without it can search as well.
"""

NO_ROW = -1


class Prefix:
    """A token sequence, as its last token and the sequence before it.

    Attributes:
        parent: the sequence without its last token; None at the root
        token: the last token
        extensions: longer by one token, by that token
        row: where the store keeps what the predictor said, or NO_ROW
    """

    __slots__ = ("__weakref__", "extensions", "parent", "row", "token")

    def __init__(self, parent: "Prefix | None", token: int, row: int = NO_ROW) -> None:
        self.parent = parent
        self.token = token
        self.extensions: dict[int, Prefix] = {}
        self.row = row

    def extend(self, token: int) -> "Prefix":
        """The prefix that has one token more."""
        extension = self.extensions.get(token)
        if extension is None:
            extension = self.extensions[token] = Prefix(self, token)
        return extension

    def path(self) -> list["Prefix"]:
        """All prefixes from the first after the root to this one."""
        backwards = []
        prefix = self
        while prefix.parent is not None:
            backwards.append(prefix)
            prefix = prefix.parent
        return backwards[::-1]

    def tokens(self) -> list[int]:
        """The tokens since the root."""
        return [prefix.token for prefix in self.path()]

    def forget(self) -> None:
        """Leave the tree, and let those before leave it, as far as nothing follows them and they have no row."""
        prefix = self
        while prefix.row == NO_ROW and not prefix.extensions and prefix.parent is not None:
            parent, prefix.parent = prefix.parent, None
            # A root that was settled on, or another node of the same tokens, may have taken its place.
            if parent.extensions.get(prefix.token) is prefix:
                del parent.extensions[prefix.token]
            prefix = parent
