/** Bar charts over time. */

interface Bar {
  at: string;
  parts: number[];
}

const WIDTH = 560;
const HEIGHT = 180;
const LEFT = 52;
const BOTTOM = 24;

/** Rounds up to 1, 2, 4 or 8 times a power of ten. */
function roundUp(value: number): number {
  if (value <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  return size * ([1, 2, 4, 8, 10].find((step) => step * size >= value) ?? 10);
}

interface Props {
  title: string;
  bars: Bar[];
  names: string[];
  show: (value: number) => string;
  /** Whether the values are counts, so that the axis has whole numbers. */
  isCount?: boolean;
}

export function Bars({ title, bars, names, show, isCount }: Props) {
  const sums = bars.map((bar) => bar.parts.reduce((sum, part) => sum + part, 0));
  const max = Math.max(roundUp(Math.max(...sums, 0)), isCount ? 2 : 0);
  const step = (WIDTH - LEFT) / Math.max(bars.length, 1);
  const barWidth = Math.max(2, Math.min(26, step * 0.7));
  const scale = (HEIGHT - BOTTOM - 14) / max;
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
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`${title}: ${total} in total, at most ${show(max)} per bar`}>
        {[0, 0.5, 1].map((share) => (
          <g>
            <line x1={LEFT} x2={WIDTH} y1={HEIGHT - BOTTOM - share * max * scale} y2={HEIGHT - BOTTOM - share * max * scale} />
            <text x={LEFT - 8} y={HEIGHT - BOTTOM - share * max * scale + 4} text-anchor="end">
              {show(share * max)}
            </text>
          </g>
        ))}
        {bars.map((bar, index) => {
          let base = HEIGHT - BOTTOM;
          return (
            <g>
              <title>{`${bar.at}: ${bar.parts.map((part, at) => `${show(part)} ${names[at]}`).join(", ")}`}</title>
              {bar.parts.map((part, at) => {
                const height = part * scale;
                base -= height;
                return <rect class={`part${at}`} x={LEFT + index * step + (step - barWidth) / 2} y={base} width={barWidth} height={Math.max(0, height)} rx="1.5" />;
              })}
              {index % every === 0 ? (
                <text x={LEFT + index * step + step / 2} y={HEIGHT - 6} text-anchor="middle">
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
