//! Helpers for tests that use recorded exchanges.

use std::collections::BTreeMap;

use bytes::Bytes;
use throughline_codec::{CodecError, DecodeContext, Framing, PriorExchanges};
use throughline_core::Reply;
use throughline_testkit::{Exchange, Recording, figure};

use super::{codec_of, reply_in, request, stream_events, target};

pub(crate) fn exchanges(
    recordings: &[Recording],
) -> impl Iterator<Item = (&Recording, usize, &Exchange)> {
    recordings.iter().flat_map(|recording| {
        recording
            .exchanges
            .iter()
            .enumerate()
            .map(move |(index, exchange)| (recording, index, exchange))
    })
}

pub(crate) fn context_of(exchange: &Exchange) -> DecodeContext {
    DecodeContext::of(target(&exchange.provider, &exchange.wire, &exchange.model))
}

pub(crate) fn reply_of(exchange: &Exchange) -> Result<Reply, CodecError> {
    let codec = codec_of(&exchange.wire);
    let context = context_of(exchange);
    if !exchange.stream || exchange.status >= 400 {
        return codec.decode_reply(&Bytes::from(exchange.response.clone()), &context);
    }
    let framing = exchange.content_type.as_deref().and_then(Framing::from_content_type);
    let framing = framing.unwrap_or(codec.framing());
    let events = stream_events(codec, &context, framing, [&exchange.response[..]])?;
    Ok(reply_in(&events).expect("a stream ends in a reply").clone())
}

pub(crate) fn key(exchange: &Exchange) -> String {
    format!("{} {}", exchange.wire, exchange.provider)
}

pub(crate) fn report(label: &str, counts: &BTreeMap<String, usize>) {
    for (key, count) in counts {
        figure(&format!("{label}: {key}"), count);
    }
    figure(&format!("{label}: all"), counts.values().sum::<usize>());
}

/// Returns a recorded request for comparison with the earlier exchanges. If the recorder converted
/// this or any earlier exchange to ASCII, the request is converted too.
pub(crate) fn recorded_request(recording: &Recording, index: usize) -> String {
    let sent = &recording.exchanges[index].request;
    if is_flat(recording, index) { flat(sent) } else { sent.clone() }
}

/// Returns the successful exchanges of a recording before `index`.
pub(crate) fn prior_of(recording: &Recording, index: usize) -> PriorExchanges {
    let mut prior = PriorExchanges::new();
    for exchange in recording.exchanges.iter().take(index).filter(|exchange| exchange.status == 200)
    {
        let exchange =
            if is_flat(recording, index) { flattened(exchange) } else { exchange.clone() };
        let (codec, context) = (codec_of(&exchange.wire), context_of(&exchange));
        prior
            .push_request(codec, &request(&exchange.path, &exchange.request), context.clone())
            .unwrap();
        let body = Bytes::from(exchange.response.clone());
        if exchange.stream {
            let framing = exchange.content_type.as_deref().and_then(Framing::from_content_type);
            prior.push_stream(codec, &body, framing.unwrap_or(codec.framing()), context).unwrap();
        } else {
            prior.push_response(codec, &body, context).unwrap();
        }
    }
    prior
}

/// Returns whether the recorder converted any exchange up to `index` to ASCII.
fn is_flat(recording: &Recording, index: usize) -> bool {
    recording.exchanges.iter().take(index + 1).any(|e| !e.request_exact || !e.response_exact)
}

/// Replaces typographic characters in an exchange with ASCII, as some recorders do.
fn flattened(exchange: &Exchange) -> Exchange {
    let response = String::from_utf8(exchange.response.clone());
    let response =
        response.map_or_else(|_| exchange.response.clone(), |text| flat(&text).into_bytes());
    Exchange { request: flat(&exchange.request), response, ..exchange.clone() }
}

fn flat(text: &str) -> String {
    let pairs = [
        ('\u{2018}', "'"),
        ('\u{2019}', "'"),
        ('\u{201c}', "\\\""),
        ('\u{201d}', "\\\""),
        ('\u{2011}', "-"),
        ('\u{2013}', "-"),
        ('\u{2014}', "--"),
        ('\u{2026}', "..."),
        ('\u{202f}', " "),
        ('\u{a0}', " "),
    ];
    pairs.iter().fold(text.to_owned(), |text, (from, to)| {
        // Some clients write these characters as escapes.
        let escape = format!("\\u{:04x}", u32::from(*from));
        text.replace(*from, to).replace(&escape, to)
    })
}
