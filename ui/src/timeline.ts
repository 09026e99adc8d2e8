/** Follows a run and folds its events into the rows of a timeline. */

import { useEffect, useReducer, useRef, useState } from "preact/hooks";
import { follow, type Connection } from "./api";
import { Timeline } from "./fold";

/** Maximum number of events that are applied to the timeline per frame. */
const EVENTS_PER_FRAME = 400;

export interface FollowedRun {
  view: Timeline;
  connection: Connection;
  /** Changes with each drawn frame. */
  version: number;
}

export function useTimeline(run: string): FollowedRun {
  const [connection, setConnection] = useState<Connection>("opening");
  const timeline = useRef<Timeline>(null as unknown as Timeline);
  timeline.current ??= new Timeline();
  const [version, draw] = useReducer((n: number) => n + 1, 0);

  useEffect(() => {
    let frame = 0;
    let queue: Parameters<Timeline["apply"]>[0][] = [];
    let latest: Connection = "opening";
    const flush = () => {
      frame = 0;
      for (const event of queue.splice(0, EVENTS_PER_FRAME)) timeline.current.apply(event);
      if (queue.length) frame = requestAnimationFrame(flush);
      else setConnection(latest);
      draw(undefined as never);
    };
    const stop = follow(
      run,
      (events) => {
        queue = queue.concat(events);
        if (!frame) frame = requestAnimationFrame(flush);
      },
      (connection) => {
        latest = connection;
        // The page shows "ended" only after it has drawn every event.
        if (!frame) setConnection(latest);
      },
    );
    return () => {
      stop();
      cancelAnimationFrame(frame);
    };
  }, [run]);
  return { view: timeline.current, connection, version };
}
