/**
 * Where the commits of a history and the lines between them go. Pure: commits in, columns out.
 *
 * A lane is a column that waits for one commit. A lane never moves, so that a line is straight until it reaches the
 * commit it leads to; lanes that wait for the same commit meet there.
 */

/**
 * For commits, newest first and each before its parents: `{rows, width}`. A row has the `column` of its commit and the
 * `lines` to the row below: `{from, to, colour}`, `isCut` for a parent that is not drawn. The commit with the id `trunk`
 * gets the first column, and with it everything it builds on over first parents.
 */
export function layLanes(commits, trunk = null) {
  const drawn = new Set(commits.map(({ graph_commit_id: id }) => id));
  /** The commit that each lane waits for; null where it is free. */
  const lanes = drawn.has(trunk) ? [trunk] : [];
  /** The first lane is kept free for the trunk, without a line, until a line leads there. */
  let isKept = lanes.length > 0;
  const rows = [];
  let width = 1;
  for (const commit of commits) {
    const column = columnOf(lanes, commit.graph_commit_id);
    for (let lane = 0; lane < lanes.length; lane += 1) {
      if (lanes[lane] === commit.graph_commit_id) lanes[lane] = null;
    }
    if (commit.graph_commit_id === trunk) isKept = false;
    const passing = lanes
      .map((awaited, lane) => ({ awaited, from: lane, lane, colour: lane }))
      .filter(({ awaited, lane }) => awaited !== null && !(isKept && lane === 0));
    const own = parents(commit).map((parent, number) => startLane(lanes, parent, column, number, drawn));
    if (own.some(({ awaited }) => awaited === trunk)) isKept = false;
    rows.push({ column, lines: [...passing, ...own] });
    width = Math.max(width, lanes.length);
    while (lanes.length && lanes.at(-1) === null) lanes.pop();
  }
  return { rows: rows.map((row, place) => ends(row, rows[place + 1], commits[place + 1])), width };
}

function parents({ parent_commit_id: parent, merged_parent_commit_id: merged }) {
  return [...new Set([parent, merged])].filter((id) => id !== null && id !== undefined);
}

function columnOf(lanes, id) {
  const waiting = lanes.indexOf(id);
  if (waiting >= 0) return waiting;
  const free = lanes.indexOf(null);
  const column = free >= 0 ? free : lanes.length;
  lanes[column] = id;
  return column;
}

/**
 * The line from a commit to one of its parents; the first parent goes on in the lane of the commit, and a line to it
 * has the colour of the commit. That to a merged parent has the colour of where it comes from.
 */
function startLane(lanes, parent, column, number, drawn) {
  const isFirst = number === 0;
  if (!drawn.has(parent)) return { awaited: parent, from: column, lane: column, colour: column, isCut: true };
  const waiting = lanes.indexOf(parent);
  // The lane further left wins, so that the trunk stays straight.
  const isJoining = waiting >= 0 && (!isFirst || waiting < column);
  if (isJoining) return { awaited: parent, from: column, lane: waiting, colour: isFirst ? column : waiting };
  const lane = isFirst ? column : freeLane(lanes, column);
  while (lanes.length <= lane) lanes.push(null);
  lanes[lane] = parent;
  return { awaited: parent, from: column, lane, colour: lane };
}

function freeLane(lanes, column) {
  const free = lanes.findIndex((awaited, lane) => awaited === null && lane !== column);
  return free >= 0 ? free : Math.max(lanes.length, column + 1);
}

/** Lines that wait for the commit of the next row end in its column, the others in their own lane. */
function ends({ column, lines }, next, nextCommit) {
  return {
    column,
    lines: lines.map(({ awaited, from, lane, colour, isCut = false }) => ({
      from,
      to: !isCut && awaited === nextCommit?.graph_commit_id ? next.column : lane,
      colour,
      isCut,
    })),
  };
}
