//! Tests that the loader reads every recording, and that each recording fits its folder.

use std::collections::BTreeSet;

use super::{FOLDERS, captures, recordings};
use crate::{figure, skip};

const WIRES: [&str; 5] =
    ["anthropic-messages", "openai-responses", "openai-chat", "gemini", "bedrock-converse"];

#[test]
fn recordings_load_from_every_folder_and_wire() {
    let Some(recordings) = recordings() else {
        return skip("the folder ../shared/recordings is absent");
    };
    let folders: BTreeSet<&str> = recordings.iter().map(|found| found.folder.as_str()).collect();
    assert_eq!(folders, BTreeSet::from(FOLDERS));

    let exchanges = || recordings.iter().flat_map(|recording| &recording.exchanges);
    let wires: BTreeSet<&str> = exchanges().map(|exchange| exchange.wire.as_str()).collect();
    assert_eq!(wires, BTreeSet::from(WIRES));
    assert!(exchanges().all(|exchange| !exchange.response.is_empty()));

    figure("recordings loaded", recordings.len());
    figure("exchanges in the recordings", exchanges().count());
}

#[test]
fn recordings_in_mixed_change_provider_and_no_others_do() {
    let Some(recordings) = recordings() else {
        return skip("the folder ../shared/recordings is absent");
    };
    for recording in recordings {
        let providers: BTreeSet<&str> =
            recording.exchanges.iter().map(|exchange| exchange.provider.as_str()).collect();
        assert_eq!(providers.len() > 1, recording.folder == "mixed", "{}", recording.name);
    }
}

#[test]
fn recordings_of_refusals_name_exchanges_that_answered_400() {
    let Some(recordings) = recordings() else {
        return skip("the folder ../shared/recordings is absent");
    };
    for recording in recordings {
        assert_eq!(!recording.refused.is_empty(), recording.folder == "refusals");
        for refused in recording.refused {
            assert_eq!(recording.exchanges[refused].status, 400, "{}", recording.name);
        }
    }
}

#[test]
fn captures_in_the_recordings_are_json_or_json_lines() {
    let Some(captures) = captures() else {
        return skip("the folder ../shared/recordings is absent");
    };
    for capture in &captures {
        let documents: Vec<&str> = match capture.framing.as_str() {
            "json" => vec![&capture.response],
            "json-lines" => capture.response.lines().collect(),
            other => panic!("{}: unknown framing {other:?}", capture.name),
        };
        for document in documents {
            let parsed = serde_json::from_str::<serde::de::IgnoredAny>(document);
            assert!(parsed.is_ok(), "{}: {document}", capture.name);
        }
    }
    figure("captures in the recordings", captures.len());
}
