//! Sample documents: the fixtures, and the recorded exchanges if present.

use bytes::Bytes;
use throughline_codec::{CODECS, Codec, DecodeContext, Framing};
use throughline_core::{Call, Reply, Request, Target};
use throughline_testkit::{recordings, workspace_root};

use super::{codec_of, reply_in, request, stream_events, target};

/// A document with the context needed to decode it.
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) codec: &'static dyn Codec,
    pub(crate) context: DecodeContext,
    pub(crate) kind: SampleKind,
    pub(crate) path: String,
    pub(crate) bytes: Bytes,
}

pub(crate) enum SampleKind {
    Request,
    Response,
    Stream(Framing),
}

/// Returns the fixtures, then the recorded exchanges if present.
pub(crate) fn samples() -> Vec<Sample> {
    let mut samples = fixtures();
    assert!(samples.len() >= 20, "found only {} fixtures", samples.len());
    for recording in recordings().unwrap_or_default() {
        for (index, exchange) in
            recording.exchanges.iter().enumerate().filter(|(_, e)| e.status < 400)
        {
            let codec = codec_of(&exchange.wire);
            let context =
                DecodeContext::of(target(&exchange.provider, &exchange.wire, &exchange.model));
            let sample = |kind, bytes| Sample {
                name: format!("{} #{index}", recording.name),
                codec,
                context: context.clone(),
                kind,
                path: exchange.path.clone(),
                bytes,
            };
            samples.push(sample(SampleKind::Request, Bytes::from(exchange.request.clone())));
            let framing = exchange.content_type.as_deref().and_then(Framing::from_content_type);
            let kind = match framing {
                Some(framing) if exchange.stream => SampleKind::Stream(framing),
                Some(_) | None if exchange.stream => SampleKind::Stream(codec.framing()),
                Some(_) | None => SampleKind::Response,
            };
            samples.push(sample(kind, Bytes::from(exchange.response.clone())));
        }
    }
    samples
}

pub(crate) fn fixtures() -> Vec<Sample> {
    let root = workspace_root().join("crates/codec/tests/fixtures");
    let mut samples = Vec::new();
    for codec in CODECS {
        let wire = codec.wire();
        let mut files: Vec<_> = std::fs::read_dir(root.join(wire.as_str()))
            .unwrap_or_else(|error| panic!("no fixtures for {wire}: {error}"))
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        for file in files {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            let [provider, model, rest] = name.splitn(3, "--").collect::<Vec<_>>()[..] else {
                panic!("{name}: a fixture must be named provider--model--what.kind")
            };
            let kind = match rest.split_once('.').map(|(_, kind)| kind) {
                Some("request.json") => SampleKind::Request,
                Some("response.json") => SampleKind::Response,
                Some("stream.sse") => SampleKind::Stream(Framing::Sse),
                Some("stream.jsonl") => SampleKind::Stream(Framing::JsonLines),
                Some("stream.array.json") => SampleKind::Stream(Framing::JsonArray),
                other => panic!("{name}: unknown kind of fixture: {other:?}"),
            };
            samples.push(Sample {
                context: DecodeContext::of(target(provider, wire.as_str(), model)),
                codec: *codec,
                kind,
                path: default_path(wire.as_str(), model, rest.contains("streamed")),
                bytes: Bytes::from(std::fs::read(&file).unwrap()),
                name,
            });
        }
    }
    samples
}

pub(crate) fn default_path(wire: &str, model: &str, streamed: bool) -> String {
    match (wire, streamed) {
        ("anthropic-messages", _) => "/v1/messages".to_owned(),
        ("openai-responses", _) => "/v1/responses".to_owned(),
        ("openai-chat", _) => "/v1/chat/completions".to_owned(),
        ("gemini", false) => format!("/v1beta/models/{model}:generateContent"),
        ("gemini", true) => format!("/v1beta/models/{model}:streamGenerateContent?alt=sse"),
        (_, false) => format!("/model/{model}/converse"),
        (_, true) => format!("/model/{model}/converse-stream"),
    }
}

impl Sample {
    pub(crate) fn request(&self) -> Request {
        request(&self.path, std::str::from_utf8(&self.bytes).unwrap())
    }

    pub(crate) fn call(&self) -> Call {
        let call = self.codec.decode_request(&self.request(), &self.context);
        call.unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    pub(crate) fn reply(&self) -> Reply {
        let reply = match self.kind {
            SampleKind::Request => panic!("{}: not a response", self.name),
            SampleKind::Response => self.codec.decode_reply(&self.bytes, &self.context),
            SampleKind::Stream(framing) => {
                stream_events(self.codec, &self.context, framing, [&self.bytes[..]])
                    .map(|events| reply_in(&events).expect("a stream ends in a reply").clone())
            }
        };
        reply.unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    pub(crate) fn is_request(&self) -> bool {
        matches!(self.kind, SampleKind::Request)
    }
}

/// Returns one target per wire, each with a different provider and model.
pub(crate) fn targets() -> Vec<(&'static dyn Codec, Target)> {
    let target_of = |wire: &str| match wire {
        "anthropic-messages" => target("anthropic", wire, "claude-sonnet-4-5"),
        "openai-responses" => target("openai", wire, "gpt-5.2"),
        "openai-chat" => target("deepseek", wire, "deepseek-reasoner"),
        "gemini" => target("gemini", wire, "gemini-3-pro-preview"),
        _ => target("bedrock", wire, "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
    };
    CODECS.iter().map(|codec| (*codec, target_of(codec.wire().as_str()))).collect()
}
