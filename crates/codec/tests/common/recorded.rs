//! Recorded exchanges as the tests use them.

use std::collections::BTreeMap;

use bytes::Bytes;
use throughline_codec::{Asked, CodecError, Framing};
use throughline_core::Reply;
use throughline_testkit::{Exchange, Recording, figure};

use super::{codec_of, reply_in, stream_events, target};

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

pub(crate) fn asked_of(exchange: &Exchange) -> Asked {
    Asked::of(target(&exchange.provider, &exchange.wire, &exchange.model))
}

pub(crate) fn reply_of(exchange: &Exchange) -> Result<Reply, CodecError> {
    let codec = codec_of(&exchange.wire);
    let asked = asked_of(exchange);
    if !exchange.stream || exchange.status >= 400 {
        return codec.decode_reply(&Bytes::from(exchange.response.clone()), &asked);
    }
    let framing = exchange.content_type.as_deref().and_then(Framing::of_content_type);
    let framing = framing.unwrap_or(codec.framing());
    let events = stream_events(codec, &asked, framing, [&exchange.response[..]])?;
    Ok(reply_in(&events).expect("a stream ends in a reply").clone())
}

pub(crate) fn key(exchange: &Exchange) -> String {
    format!("{} {}", exchange.wire, exchange.provider)
}

pub(crate) fn report(what: &str, counts: &BTreeMap<String, usize>) {
    for (key, count) in counts {
        figure(&format!("{what}: {key}"), count);
    }
    figure(&format!("{what}: all"), counts.values().sum::<usize>());
}
