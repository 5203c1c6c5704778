"""StepTimes: the durations of steps by their number of rows, measured as they run."""

from sharpi.trial import NUM_FIRST, Average

# The assumed cost of an unmeasured row relative to a step: low, so that it is tried.
_HOPED_SLOPE = 0.15
_REFRESHED_AFTER = 16  # equal steps after which estimates of other sizes are renewed
_OLD_AFTER = 400  # a size that has not run for so many steps is tried again


class StepTimes:
    """The seconds of a step by its number of rows, as averages in which newer steps count more.

    It assumes that more rows never take less time, so that larger sizes correct a size that was
    measured at a bad moment. It interpolates linearly between measured sizes. Without `trusts_one`,
    sizes larger than the smallest one count as measured from their second step on.
    """

    def __init__(self, *, trusts_one: bool = True) -> None:
        self._least = 1 if trusts_one else 2  # steps of a size that an estimate needs
        self._averages: dict[int, Average] = {}
        self._latest: dict[int, int] = {}  # the step at which each size ran last
        self._num_steps = 0
        self._answers: dict[int, float] = {}  # recent results of `seconds`
        self._answered = 0  # the size of the last step

    def record(self, rows: int, seconds: float) -> None:
        """Records the duration of a step that had `rows` rows."""
        if rows not in self._averages or self._is_old(rows):
            self._averages[rows] = Average()
        average = self._averages[rows]
        average.add(seconds)
        self._num_steps += 1
        self._latest[rows] = self._num_steps
        is_renewed = average.count <= NUM_FIRST or self._num_steps % _REFRESHED_AFTER == 0
        if is_renewed or rows != self._answered:
            self._answers.clear()
        self._answered = rows
        if average.count >= self._least:
            self._answers[rows] = average.value

    def _is_old(self, rows: int) -> bool:
        return self._num_steps - self._latest.get(rows, self._num_steps) > _OLD_AFTER

    def count(self, rows: int) -> int:
        """Returns the number of measured steps that had `rows` rows."""
        return self._averages[rows].count if rows in self._averages else 0

    def is_known(self, rows: int) -> bool:
        """Returns True if steps of about `rows` rows were measured more than once, and recently."""
        near = range(rows - rows // 4, rows + rows // 4 + 1)
        return any(self.count(each) > 1 and not self._is_old(each) for each in near)

    def seconds(self, rows: int) -> float:
        """Returns the expected seconds of a step of `rows` rows; 0 before any measurement."""
        answer = self._answers.get(rows)
        if answer is None:
            answer = self._answers[rows] = self._estimate(rows)
        return answer

    def _slope(self, sizes: list[int], lower: int, base: float) -> float:
        """Returns the seconds to assume for each row beyond the largest measured size.

        Without a disk this is little, so that such steps are tried. With a disk, further rows are
        assumed to read as much as earlier ones. `base` are the seconds of a step of `lower` rows.
        """
        hoped, first = _HOPED_SLOPE * base / lower, sizes[0]
        if self._least == 1 or lower == first:
            return hoped
        return max(hoped, (base - self._averages[first].value) / (lower - first))

    def _estimate(self, rows: int) -> float:
        sizes = sorted(size for size in self._averages if not self._is_old(size))
        sizes = [size for size in sizes if size == sizes[0] or self.count(size) >= self._least]
        larger = [self._averages[size].value for size in sizes if size >= rows]
        smaller = [size for size in sizes if size < rows]
        if rows in sizes or not smaller:
            return min(larger, default=0.0)
        lower = smaller[-1]
        base = min(self._averages[size].value for size in sizes if size >= lower)
        if not larger:
            return base + self._slope(sizes, lower, base) * (rows - lower)
        upper = next(size for size in sizes if size >= rows)
        return base + (min(larger) - base) * (rows - lower) / (upper - lower)
