/** Time series by day, drawn with uPlot. The chart follows the theme and the width of its box. */

import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

export interface Series {
  name: string;
  /** One value per day; `null` if there is none. */
  values: (number | null)[];
  /** The CSS variable of the colour, such as `--accent`. */
  colour: string;
}

interface Props {
  title: string;
  /** The days in UTC, such as `2026-01-31`. */
  days: string[];
  series: Series[];
  show: (value: number) => string;
  /** Whether the axis has only whole numbers, for counts and milliseconds. */
  isWhole?: boolean;
  /** Draws bars instead of lines. */
  isBars?: boolean;
  /** Opens a day; called with the day on which the user clicked. */
  open?: (day: string) => void;
}

const HEIGHT = 170;

/** Changes whenever the colours of the page change. */
function useThemeVersion(): number {
  const [version, setVersion] = useState(0);
  useEffect(() => {
    const change = () => setVersion((n) => n + 1);
    const observer = new MutationObserver(change);
    observer.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", change);
    return () => {
      observer.disconnect();
      dark.removeEventListener("change", change);
    };
  }, []);
  return version;
}

/** The distances between the grid lines of an axis with whole numbers. */
const WHOLE = Array.from({ length: 13 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** power)).flat();

function options({ days, series, show, isBars, isWhole }: Props, width: number): uPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const font = `11px ${style.getPropertyValue("--sans")}`;
  const [line, text] = [colour("--line"), colour("--faint")];
  const value = (_: uPlot, number: number | null) => (number === null || number === undefined ? "" : show(number));
  return {
    width,
    height: HEIGHT,
    cursor: { y: false, points: { size: 7 } },
    legend: { live: true },
    padding: [8, 8, 0, 0],
    tzDate: (time) => uPlot.tzDate(new Date(time * 1000), "Etc/UTC"),
    scales: { x: { time: true, range: (_, min, max) => [min - 43_200, Math.max(max, min + 86_400) + 43_200] }, y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : isWhole ? 4 : 1] } },
    axes: [
      {
        stroke: text,
        font,
        size: 24,
        grid: { show: false },
        ticks: { show: false },
        splits: () => ticks(days, width),
        values: (_, times) => times.map((time) => new Date(time * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" })),
      },
      { stroke: text, font, size: 58, grid: { stroke: line, width: 1 }, ticks: { show: false }, ...(isWhole ? { incrs: WHOLE } : {}), values: (_, all) => all.map(show) },
    ],
    series: [
      { label: "Day (UTC)", value: (_, time) => (time ? new Date(time * 1000).toISOString().slice(0, 10) : "") },
      ...series.map((one) => ({
        label: one.name,
        stroke: colour(one.colour),
        fill: isBars ? colour(one.colour) : undefined,
        width: isBars ? 0 : 2,
        points: { show: !isBars && days.length < 40, size: 5 },
        paths: isBars ? uPlot.paths.bars!({ size: [0.6, 28] }) : undefined,
        value,
      })),
    ],
  };
}

const seconds = (day: string) => Date.parse(`${day}T00:00:00Z`) / 1000;

/** Returns the times of the labelled days, so that labels do not overlap. */
function ticks(days: string[], width: number): number[] {
  const every = Math.max(1, Math.ceil(days.length / Math.max(1, Math.floor((width - 60) / 56))));
  return days.filter((_, index) => index % every === 0).map(seconds);
}

export function Chart(props: Props) {
  const { title, days, series, show, open } = props;
  const box = useRef<HTMLDivElement>(null);
  const theme = useThemeVersion();
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry!.contentRect.width)));
    observer.observe(box.current!);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    if (!width) return;
    const data = [days.map(seconds), ...series.map((one) => one.values)] as uPlot.AlignedData;
    const plot = new uPlot(options(props, width), data, box.current!);
    const click = () => {
      const day = days[plot.cursor.idx ?? -1];
      if (day && open) open(day);
    };
    plot.over.addEventListener("click", click);
    return () => plot.destroy();
  }, [width, theme, JSON.stringify([days, series])]);
  const total = series.map((one) => `${one.name} ${show(Math.max(0, ...one.values.map((value) => value ?? 0)))} at most`).join(", ");
  return (
    <figure class={open ? "plot chart opens" : "plot chart"}>
      <figcaption>{title}</figcaption>
      <div ref={box} role="img" aria-label={`${title} by day: ${total}`} />
    </figure>
  );
}
