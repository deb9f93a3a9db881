/** A drawing that can be moved and zoomed: drag, pinch, wheel. */

const SMALLEST = 0.15;
const LARGEST = 3;
/** Smaller than this, text cannot be read: a drawing that does not fit starts at its corner instead. */
const READABLE = 0.55;
const DRAG = 4;

/**
 * Make the group `drawing` inside the `image` movable; `bounds` is what it covers. Gives `fit()` and `zoom(factor)`.
 */
export function panAndZoom(image, drawing, bounds) {
  let scale = 1;
  let shift = { x: 0, y: 0 };
  const fingers = new Map();
  let isDragged = false;

  function show() {
    drawing.setAttribute("transform", `translate(${shift.x} ${shift.y}) scale(${scale})`);
  }

  function fit() {
    const { clientWidth: width, clientHeight: height } = image;
    if (!width || !height) return;
    const whole = Math.min(width / bounds.width, height / bounds.height, 1);
    scale = Math.max(whole, Math.min(READABLE, 1));
    const centre = (outer, inner, begin) => Math.max((outer - inner * scale) / 2, 0) - begin * scale;
    shift = { x: centre(width, bounds.width, bounds.left), y: centre(height, bounds.height, bounds.top) };
    show();
  }

  function zoomAt(factor, x, y) {
    const next = Math.min(Math.max(scale * factor, SMALLEST), LARGEST);
    shift = { x: x - ((x - shift.x) * next) / scale, y: y - ((y - shift.y) * next) / scale };
    scale = next;
    show();
  }

  function inside(event) {
    const { left, top } = image.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  }

  image.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, inside(event));
    isDragged = false;
  });
  image.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    const now = inside(event);
    if (!isDragged && Math.hypot(now.x - before.x, now.y - before.y) < DRAG) return;
    // Captured only now: a capture at once would take the click away from the boxes.
    if (!isDragged) image.setPointerCapture(event.pointerId);
    isDragged = true;
    if (fingers.size === 2) {
      const [other] = [...fingers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
      const reach = ({ x, y }) => Math.hypot(x - other.x, y - other.y) || 1;
      zoomAt(reach(now) / reach(before), (now.x + other.x) / 2, (now.y + other.y) / 2);
    } else {
      shift = { x: shift.x + now.x - before.x, y: shift.y + now.y - before.y };
      show();
    }
    fingers.set(event.pointerId, now);
  });
  for (const end of ["pointerup", "pointercancel"]) {
    image.addEventListener(end, (event) => fingers.delete(event.pointerId));
  }
  image.addEventListener(
    "click",
    (event) => {
      if (isDragged) event.stopPropagation(); // the end of a drag chooses nothing
      isDragged = false;
    },
    { capture: true },
  );
  image.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const { x, y } = inside(event);
      zoomAt(Math.exp(-event.deltaY / 400), x, y);
    },
    { passive: false },
  );

  return {
    fit,
    zoom: (factor) => zoomAt(factor, image.clientWidth / 2, image.clientHeight / 2),
  };
}
