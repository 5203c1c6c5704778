"""Chooses the records to read where layers with windows keep only the ends of texts.

A text can be continued where these layers have all positions that its next token reads. On disk
that is at the end of each text that was saved, and at snapshots. Before that, partial records are
enough.
"""

from collections.abc import Iterator, Sequence

from sharpi.engine.prompt_cache.prompt_cache import PromptCache
from sharpi.engine.prompt_cache.record import Record
from sharpi.engine.scheduling.prefix_cache import Prefix, PrefixCache
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS


def page_tokens(tokens: Sequence[int], number: int) -> Sequence[int]:
    """Returns the tokens of page `number`, fewer at the end of the text."""
    return tokens[number * PAGE_POSITIONS : (number + 1) * PAGE_POSITIONS]


def plan_with_windows(
    cache: PrefixCache,
    disk: PromptCache,
    tokens: Sequence[int],
    known: Prefix,
    links: list[bytes],
) -> list[Record]:
    """Lists the records that extend the usable prefix most, in order; empty if none does.

    `known` is what memory has of the text, and `links` are those of its whole pages.
    """
    have_windows = list(_have_windows(cache, disk, known, links))
    whole = len(have_windows)
    of_last = known.length - whole * PAGE_POSITIONS if whole == len(known.whole) else 0
    count = disk.longest(links[whole], page_tokens(tokens, whole), has_state=False)
    if count > of_last:
        have_windows.append(True)
    elif of_last and known.last is not None:
        count = 0
        have_windows.append(cache.windows.has(known.last.page))
    usable = cache.windows.usable_of(have_windows, whole * PAGE_POSITIONS + max(count, of_last))
    if usable <= cache.cut_to_windows(known).length:
        return []
    numbers = range(min(whole, usable // PAGE_POSITIONS))
    plan = [_record(cache, disk, tokens, known, links, number, usable) for number in numbers]
    if count and usable > whole * PAGE_POSITIONS:
        last = page_tokens(tokens, whole)[:count]
        plan.append(disk.record(links[whole], whole * PAGE_POSITIONS, last))
    return [record for record in plan if record is not None]


def _have_windows(
    cache: PrefixCache, disk: PromptCache, known: Prefix, links: list[bytes]
) -> Iterator[bool]:
    """Says of each whole page, as far as pages are anywhere, if it has its windows anywhere."""
    for number, link in enumerate(links[:-1]):
        own = links[number + 1]
        is_known = number < len(known.whole)
        if (is_known and cache.windows.has(known.whole[number].page)) or disk.has_page(link, own):
            yield True
        elif is_known or disk.has_partial(link, own):
            yield False
        else:
            return


def _record(
    cache: PrefixCache,
    disk: PromptCache,
    tokens: Sequence[int],
    known: Prefix,
    links: list[bytes],
    number: int,
    length: int,
) -> Record | None:
    """Returns the record to read for whole page `number` of `length` tokens; None for none."""
    is_known = number < len(known.whole)
    is_in_window = number >= cache.windows.first_needed(length)
    if is_known and (not is_in_window or cache.windows.has(known.whole[number].page)):
        return None
    position, own = number * PAGE_POSITIONS, page_tokens(tokens, number)
    is_partial = not is_in_window and disk.has_partial(links[number], links[number + 1])
    return disk.record(links[number], position, own, is_partial=is_partial)
