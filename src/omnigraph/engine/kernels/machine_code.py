"""Loops that are compiled to machine code where the extra `fast` is installed; `compiled` says how and when.

They are plain functions over arrays, without calls of each other, and work as they are: only slowly. All of them leave
their scratch as they found it. The neighbours of node `n` are `targets[starts[n]:ends[n]]`, sorted, each once.
"""

from __future__ import annotations

from omnigraph.engine.rows import BoolArray, IntArray, Numbers

#: A list this many times longer than the other is searched instead of being walked.
_SKEW = 16


def common_counts(
    first_starts: IntArray,
    first_ends: IntArray,
    first_targets: Numbers,
    first: IntArray,
    second_starts: IntArray,
    second_ends: IntArray,
    second_targets: Numbers,
    second: IntArray,
    allowed: BoolArray,
    marks: BoolArray,
    counts: IntArray,
) -> None:
    """Per row, how many nodes are neighbours of both its nodes, and allowed; no `allowed` allows all.

    The neighbours of the first node are marked once for all rows in a row that have the same.
    """
    marked = -1
    for row in range(len(first)):
        x, y = first[row], second[row]
        x_start, x_end, y_start, y_end = first_starts[x], first_ends[x], second_starts[y], second_ends[y]
        found = 0
        if (y_end - y_start) > _SKEW * (x_end - x_start):
            low = y_start
            for place in range(x_start, x_end):
                wanted = first_targets[place]
                high = y_end
                while low < high:
                    middle = (low + high) >> 1
                    if second_targets[middle] < wanted:
                        low = middle + 1
                    else:
                        high = middle
                if low < y_end and second_targets[low] == wanted and (len(allowed) == 0 or allowed[wanted]):
                    found += 1
        elif marked != x and (x_end - x_start) > _SKEW * (y_end - y_start):
            low = x_start
            for place in range(y_start, y_end):
                wanted = second_targets[place]
                high = x_end
                while low < high:
                    middle = (low + high) >> 1
                    if first_targets[middle] < wanted:
                        low = middle + 1
                    else:
                        high = middle
                if low < x_end and first_targets[low] == wanted and (len(allowed) == 0 or allowed[wanted]):
                    found += 1
        else:
            if marked != x:
                if marked >= 0:
                    for place in range(first_starts[marked], first_ends[marked]):
                        marks[first_targets[place]] = False
                for place in range(x_start, x_end):
                    node = first_targets[place]
                    marks[node] = len(allowed) == 0 or allowed[node]
                marked = x
            for place in range(y_start, y_end):
                found += marks[second_targets[place]]
        counts[row] = found
    if marked >= 0:
        for place in range(first_starts[marked], first_ends[marked]):
            marks[first_targets[place]] = False


def common_pairs(
    first_starts: IntArray,
    first_ends: IntArray,
    first_targets: Numbers,
    first: IntArray,
    second_starts: IntArray,
    second_ends: IntArray,
    second_targets: Numbers,
    second: IntArray,
    allowed: BoolArray,
    marks: BoolArray,
    rows: IntArray,
    nodes: IntArray,
) -> int:
    """As `common_counts`, with each row and node as a pair; returns how many pairs there are."""
    marked = -1
    done = 0
    for row in range(len(first)):
        x, y = first[row], second[row]
        x_start, x_end, y_start, y_end = first_starts[x], first_ends[x], second_starts[y], second_ends[y]
        if (y_end - y_start) > _SKEW * (x_end - x_start):
            low = y_start
            for place in range(x_start, x_end):
                wanted = first_targets[place]
                high = y_end
                while low < high:
                    middle = (low + high) >> 1
                    if second_targets[middle] < wanted:
                        low = middle + 1
                    else:
                        high = middle
                if low < y_end and second_targets[low] == wanted and (len(allowed) == 0 or allowed[wanted]):
                    rows[done] = row
                    nodes[done] = wanted
                    done += 1
        elif marked != x and (x_end - x_start) > _SKEW * (y_end - y_start):
            low = x_start
            for place in range(y_start, y_end):
                wanted = second_targets[place]
                high = x_end
                while low < high:
                    middle = (low + high) >> 1
                    if first_targets[middle] < wanted:
                        low = middle + 1
                    else:
                        high = middle
                if low < x_end and first_targets[low] == wanted and (len(allowed) == 0 or allowed[wanted]):
                    rows[done] = row
                    nodes[done] = wanted
                    done += 1
        else:
            if marked != x:
                if marked >= 0:
                    for place in range(first_starts[marked], first_ends[marked]):
                        marks[first_targets[place]] = False
                for place in range(x_start, x_end):
                    node = first_targets[place]
                    marks[node] = len(allowed) == 0 or allowed[node]
                marked = x
            for place in range(y_start, y_end):
                node = second_targets[place]
                if marks[node]:
                    rows[done] = row
                    nodes[done] = node
                    done += 1
    if marked >= 0:
        for place in range(first_starts[marked], first_ends[marked]):
            marks[first_targets[place]] = False
    return done


def weighed_ways(
    near_starts: IntArray,
    near_ends: IntArray,
    near_targets: Numbers,
    heads: IntArray,
    back_starts: IntArray,
    back_ends: IntArray,
    back_targets: Numbers,
    offsets: IntArray,
    others: IntArray,
    weights: IntArray,
    allowed: BoolArray,
    scratch: IntArray,
    sums: IntArray,
) -> None:
    """Per head, the weights of all ways over an allowed neighbour of it to one of its others, added up.

    The others of head `i`, at which ways end, are those from `offsets[i]` to before `offsets[i + 1]`; no weights are 1.
    """
    for index in range(len(heads)):
        begin, end = offsets[index], offsets[index + 1]
        for place in range(begin, end):
            scratch[others[place]] += weights[place] if len(weights) else 1
        head = heads[index]
        total = 0
        for place in range(near_starts[head], near_ends[head]):
            node = near_targets[place]
            if len(allowed) == 0 or allowed[node]:
                for back in range(back_starts[node], back_ends[node]):
                    total += scratch[back_targets[back]]
        sums[index] = total
        for place in range(begin, end):
            scratch[others[place]] = 0


def are_linked(
    starts: IntArray,
    ends: IntArray,
    targets: Numbers,
    nodes: IntArray,
    wanted: IntArray,
    marks: BoolArray,
    found: BoolArray,
) -> None:
    """Per row, whether its wanted number is among the neighbours of its node; without marks every row is searched.

    Where many rows in a row have the same node, its neighbours are marked once.
    """
    row = 0
    while row < len(nodes):
        node = nodes[row]
        stop = row + 1
        while stop < len(nodes) and nodes[stop] == node:
            stop += 1
        start, end = starts[node], ends[node]
        if len(marks) and (stop - row) * 4 > end - start:
            for place in range(start, end):
                marks[targets[place]] = True
            for other in range(row, stop):
                found[other] = marks[wanted[other]]
            for place in range(start, end):
                marks[targets[place]] = False
        else:
            for other in range(row, stop):
                low, high = start, end
                while low < high:
                    middle = (low + high) >> 1
                    if targets[middle] < wanted[other]:
                        low = middle + 1
                    else:
                        high = middle
                found[other] = low < end and targets[low] == wanted[other]
        row = stop


def reached(
    starts: IntArray,
    ends: IntArray,
    targets: Numbers,
    seeds: IntArray,
    low: int,
    high: int,
    allowed: BoolArray,
    weights: IntArray,
    stamps: IntArray,
    queue: IntArray,
    counts: IntArray,
    totals: IntArray,
    nodes: IntArray,
    steps: int,
) -> int:
    """The allowed nodes that each seed reaches first at one of the hops from `low` to `high`.

    `counts` gets how many they are; `totals`, unless it is empty, the weight of the seed for each of them; and `nodes`,
    unless it is empty, the nodes themselves, one seed after the other. Stops where the nodes of one more seed may not
    fit into `nodes`, or after so many steps; returns how many seeds are done, at least one.
    """
    written = 0
    walked = 0
    for index in range(len(seeds)):
        if index and (walked > steps or (len(nodes) and len(nodes) - written < len(stamps))):
            return index
        seed = seeds[index]
        stamp = index + 1
        stamps[seed] = stamp
        queue[0] = seed
        begin, end = 0, 1
        count = 0
        for hop in range(1, high + 1):
            last = end
            for place in range(begin, end):
                node = queue[place]
                walked += ends[node] - starts[node]
                for spot in range(starts[node], ends[node]):
                    target = targets[spot]
                    if stamps[target] != stamp:
                        stamps[target] = stamp
                        queue[last] = target
                        last += 1
                    elif not (hop == 1 and target == seed):
                        continue
                    # A loop reaches the seed, although it counts as visited.
                    if hop >= low and (len(allowed) == 0 or allowed[target]):
                        count += 1
                        if len(totals):
                            totals[target] += weights[index] if len(weights) else 1
                        if len(nodes):
                            nodes[written] = target
                            written += 1
            begin, end = end, last
            if begin == end:
                break
        counts[index] = count
    return len(seeds)
