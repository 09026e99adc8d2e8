/** Bars over time. */

interface Bar {
  at: string;
  parts: number[];
}

const WIDE = 560;
const HIGH = 180;
const LEFT = 52;
const BOTTOM = 24;

/** A round number that is not smaller: 1, 2, 4 or 8 and noughts. */
function above(value: number): number {
  if (value <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  return size * ([1, 2, 4, 8, 10].find((step) => step * size >= value) ?? 10);
}

export function Bars({ title, bars, names, show }: { title: string; bars: Bar[]; names: string[]; show: (value: number) => string }) {
  const sums = bars.map((bar) => bar.parts.reduce((sum, part) => sum + part, 0));
  const most = above(Math.max(...sums, 0));
  const step = (WIDE - LEFT) / Math.max(bars.length, 1);
  const wide = Math.max(2, Math.min(26, step * 0.7));
  const scale = (HIGH - BOTTOM - 14) / most;
  const every = Math.ceil(bars.length / 6);
  const total = show(sums.reduce((sum, one) => sum + one, 0));
  return (
    <figure class="plot">
      <figcaption>
        {title}
        {names.length > 1 ? (
          <span class="legend">
            {names.map((name, part) => (
              <span class={`part${part}`}>
                <i aria-hidden="true" /> {name}
              </span>
            ))}
          </span>
        ) : null}
      </figcaption>
      <svg viewBox={`0 0 ${WIDE} ${HIGH}`} role="img" aria-label={`${title}: ${total} in all, at most ${show(most)} at a time`}>
        {[0, 0.5, 1].map((share) => (
          <g>
            <line x1={LEFT} x2={WIDE} y1={HIGH - BOTTOM - share * most * scale} y2={HIGH - BOTTOM - share * most * scale} />
            <text x={LEFT - 8} y={HIGH - BOTTOM - share * most * scale + 4} text-anchor="end">
              {show(share * most)}
            </text>
          </g>
        ))}
        {bars.map((bar, place) => {
          let base = HIGH - BOTTOM;
          return (
            <g>
              <title>{`${bar.at}: ${bar.parts.map((part, at) => `${show(part)} ${names[at]}`).join(", ")}`}</title>
              {bar.parts.map((part, at) => {
                const high = part * scale;
                base -= high;
                return <rect class={`part${at}`} x={LEFT + place * step + (step - wide) / 2} y={base} width={wide} height={Math.max(0, high)} rx="1.5" />;
              })}
              {place % every === 0 ? (
                <text x={LEFT + place * step + step / 2} y={HIGH - 6} text-anchor="middle">
                  {bar.at}
                </text>
              ) : null}
            </g>
          );
        })}
      </svg>
    </figure>
  );
}
