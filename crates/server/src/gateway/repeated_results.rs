//! Removes tool results that a client sent twice, before the request is translated.
//!
//! Gemini CLI repeats the results of a session that it resumes, and Gemini accepts this. Other
//! wires accept only one result of a call. The results are removed before encoding, so that the
//! content before later Seals is the same in every request.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use throughline_core::{Body, Disposition, ElisionReason, Fate, Item, ToolResult};
use throughline_json::Name;

#[cfg(test)]
#[path = "repeated_results_tests.rs"]
mod repeated_results_tests;

/// Removes every result that equals the first result of the same call. Returns the Fates of the
/// removed Items.
pub(crate) fn remove_repeated_results(items: &mut Vec<Item>) -> Vec<Fate> {
    let mut left_out = Vec::new();
    // The results since the last Item of another kind. A repeated result follows the other results
    // of its message directly, and a later call can have the same id.
    let mut results: HashMap<Name, ToolResult> = HashMap::new();
    items.retain(|item| {
        let Body::Result(result) = &item.body else {
            results.clear();
            return true;
        };
        // A decoder gives a second result another call, so results are compared by the wire's id.
        let id = result.wire_id.as_ref().unwrap_or(&result.call.0);
        match results.entry(id.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(result.clone());
                true
            }
            Entry::Occupied(entry) if has_same_output(entry.get(), result) => {
                let elided = Disposition::Elided(ElisionReason::NotOnThisWire);
                let seals = vec![elided.clone(); item.seals.len()];
                left_out.push(Fate { item: item.id.clone(), visible: elided, seals });
                false
            }
            Entry::Occupied(_) => true,
        }
    });
    left_out
}

fn has_same_output(one: &ToolResult, other: &ToolResult) -> bool {
    one.outcome == other.outcome && one.parts == other.parts
}
