//! Checks that decoding, encoding, auditing and repairing take linear time for every request shape.
//!
//! The codecs count a step for each entry they visit: see `throughline_json::work`. From the
//! smallest to the largest size, linear work grows 32-fold and quadratic work 1,024-fold. The
//! processor time is printed next to the steps but not checked.

use std::time::Duration;

use throughline_codec::{DecodeContext, Preparation};
use throughline_json::{Tree, work};
use throughline_testkit::{LARGE_REQUESTS, LargeRequest, figure, processor_time};

use crate::common::{codec_of, request, target};

/// The smallest size, the largest size for shapes that once took quadratic time, and the largest
/// size for all other shapes.
const SMALL: usize = 1_000;
const LARGE: usize = 32_000;
const OTHERS: usize = 4_000;

/// Shapes that took quadratic time in an earlier release.
const ONCE_QUADRATIC: [&str; 11] = [
    "responses: lone reasoning items",
    "responses: lone function_call_output",
    "responses: lone function_call",
    "chat: lone tool messages",
    "chat: parallel calls, all answered",
    "anthropic: lone tool results",
    "anthropic: unanswered calls",
    "anthropic: parallel calls, all answered",
    "anthropic: plain turns",
    "anthropic: a request with many members",
    "gemini: parallel calls, all answered",
];

/// The maximum growth of the number of steps, as a multiple of the growth of the request size.
const STEPS_MARGIN: f64 = 1.15;

/// The cost of processing one request.
struct Cost {
    steps: u64,
    processor: Option<Duration>,
}

fn cost(shape: &LargeRequest, size: usize) -> Cost {
    let codec = codec_of(shape.wire);
    let target = target(shape.target.0, shape.wire, shape.target.1);
    let path = codec.path(&target, false);
    let request = request(&path, &(shape.body)(size));
    let (steps, processor) = (work::total(), processor_time());
    let tree = Tree::parse(request.body.clone()).unwrap();
    let call = codec.decode_parsed(&request, &tree, &DecodeContext::of(target.clone())).unwrap();
    let preparation = Preparation { parsed: Some(&tree), ..Preparation::new(codec, &target) };
    preparation.encode(&call).unwrap();
    let processor =
        processor.zip(processor_time()).map(|(before, after)| after.saturating_sub(before));
    Cost { steps: work::total() - steps, processor }
}

#[expect(clippy::cast_precision_loss, reason = "ratios need not be exact")]
#[test]
fn work_is_linear_in_request_size() {
    let mut wrong = Vec::new();
    for shape in LARGE_REQUESTS {
        let most = if ONCE_QUADRATIC.contains(&shape.name) { LARGE } else { OTHERS };
        let (small, large) = (cost(shape, SMALL), cost(shape, most));
        let linear = most as f64 / SMALL as f64;
        let steps = large.steps as f64 / small.steps.max(1) as f64;
        let times = [&small, &large].map(|cost| cost.processor.unwrap_or_default());
        let summary = format!(
            "{SMALL} items {} steps in {:.0?}, {most} items {} steps in {:.0?}: {steps:.1} times the steps",
            small.steps, times[0], large.steps, times[1],
        );
        figure(shape.name, summary);
        if steps > linear * STEPS_MARGIN {
            wrong.push(format!(
                "{}: {steps:.1} times the steps for {linear} times the items",
                shape.name
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
