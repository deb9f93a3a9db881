/** Room between boxes, whatever put them where they are. Pure, apart from moving the boxes it is given. */

const ROUNDS = 200;

/**
 * Push boxes (`{x, y, width, height}`, x and y in the middle) apart until `gap` lies between any two, along the
 * shorter way. Those with `isFixed` stay where they are.
 */
export function separate(boxes, gap) {
  for (let round = 0; round < ROUNDS; round += 1) {
    let isMoved = false;
    for (const [place, one] of boxes.entries()) {
      for (const other of boxes.slice(place + 1)) isMoved = pushApart(one, other, gap) || isMoved;
    }
    if (!isMoved) return;
  }
}

function pushApart(one, other, gap) {
  const overX = (one.width + other.width) / 2 + gap - Math.abs(one.x - other.x);
  const overY = (one.height + other.height) / 2 + gap - Math.abs(one.y - other.y);
  if (overX <= 0 || overY <= 0 || (one.isFixed && other.isFixed)) return false;
  const axis = overX < overY ? "x" : "y";
  const sign = one[axis] < other[axis] ? -1 : 1;
  const push = Math.min(overX, overY) + 1;
  const share = one.isFixed ? 0 : other.isFixed ? 1 : 0.5;
  one[axis] += sign * push * share;
  other[axis] -= sign * push * (1 - share);
  return true;
}
