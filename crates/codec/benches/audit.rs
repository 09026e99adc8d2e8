//! Measures the duration of an audit relative to `serde_json::from_slice::<Value>` on the same
//! request in the same run. Also shows whether the duration is linear in the request size.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench is a program that measures and prints"
)]
#![allow(missing_docs, reason = "a benchmark has no public API")]

mod support;

use std::hint::black_box;

use serde_json::Value;
use throughline_codec::{Transcript, audit, codec};

use support::{BenchWire, ratio, rounds, subjects};

const SIZES: [usize; 4] = [10_000, 100_000, 1_000_000, 10_000_000];

fn main() {
    let rounds = rounds();
    println!("audit time of a request, as a ratio to serde_json::from_slice::<Value>");
    println!("{:<20} {:>10} {:>10} {:>10} {:>10}", "wire", "10 KB", "100 KB", "1 MB", "10 MB");
    for subject in subjects() {
        // Large requests take longer per round and therefore need fewer rounds.
        let ratios = SIZES.map(|size| {
            let fewer = u32::try_from(size / 1_000_000).unwrap_or(u32::MAX).max(1);
            measure(&subject, size, (rounds / fewer).max(1))
        });
        let [smallest, small, large, largest] = ratios.map(|ratio| format!("{ratio:.2}"));
        println!("{:<20} {smallest:>10} {small:>10} {large:>10} {largest:>10}", subject.wire);
    }
    println!("{:<20} {:>10} {:>10} {:>10} {:>10}", "target", "", "", "≤ 1.50", "linear");
}

fn measure(subject: &BenchWire, size: usize, rounds: u32) -> f64 {
    let codec = codec(&subject.wire).unwrap();
    let (context, request) = (subject.context(), subject.request(size));
    let transcript = Transcript::new(codec, &request);
    let mut parse = || drop(black_box(serde_json::from_slice::<Value>(&request.body).unwrap()));
    let mut look = || drop(black_box(audit(&transcript, &context.target).unwrap()));
    ratio(rounds, &mut parse, &mut look)
}
