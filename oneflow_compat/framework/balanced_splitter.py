"""Even split of a range."""


class BalancedRanges(list):
    """[(begin, end), ...]: `total` cut into `part_size` ranges whose lengths differ by one at most, longer
    ones first.
    """

    def __init__(self, total: int, part_size: int):
        base, more = divmod(total, part_size)
        begin, parts = 0, []
        for i in range(part_size):
            end = begin + base + (i < more)
            parts.append((begin, end))
            begin = end
        super().__init__(parts)
