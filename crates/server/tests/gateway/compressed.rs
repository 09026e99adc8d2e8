//! Tests compressed request bodies and refused upgrades.

use std::io::Write as _;

use serde_json::{Value, json};
use throughline_server::ReplayMode;
use throughline_testkit::TestRng;

use crate::harness::SimGateway;

const ENCODINGS: [&str; 4] = ["zstd", "gzip", "deflate", "br"];

fn compress(encoding: &str, body: &[u8]) -> Vec<u8> {
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    match encoding {
        "zstd" => {
            ruzstd::encoding::compress_to_vec(body, ruzstd::encoding::CompressionLevel::Fastest)
        }
        "gzip" => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(body).unwrap();
            encoder.finish().unwrap()
        }
        "deflate" => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(body).unwrap();
            encoder.finish().unwrap()
        }
        _ => {
            let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 3, 20);
            encoder.write_all(body).unwrap();
            encoder.into_inner()
        }
    }
}

/// Returns a request with about this many bytes of text.
fn question(length: usize) -> Vec<u8> {
    let text = "Add these numbers: 1 2 3. ".repeat(length / 26 + 1);
    json!({"model": "sim/gpt-5.2", "input": text}).to_string().into_bytes()
}

async fn post(gateway: &SimGateway, encoding: &str, body: Vec<u8>) -> (u16, Value) {
    let headers = [("content-type", "application/json"), ("content-encoding", encoding)];
    gateway.raw("/v1/responses", body, &headers).await
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_requests_are_answered() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    for length in [1 << 10, 1 << 20] {
        let body = question(length);
        let (status, plain) = gateway.raw("/v1/responses", body.clone(), &[]).await;
        assert_eq!(status, 200, "{plain}");
        for encoding in ENCODINGS {
            let compressed = compress(encoding, &body);
            assert!(compressed.len() < body.len() / 2, "{encoding}");
            let (status, answer) = post(&gateway, encoding, compressed).await;
            assert_eq!(status, 200, "{encoding}: {answer}");
            let tokens = |answer: &Value| answer["usage"]["input_tokens"].clone();
            assert_eq!(tokens(&answer), tokens(&plain), "{encoding}");
        }
    }
    let (status, answer) = post(&gateway, "identity", question(1)).await;
    assert_eq!(status, 200, "{answer}");
    gateway.assert_nothing_refused();
}

#[tokio::test(flavor = "multi_thread")]
async fn deflate_without_a_zlib_header_is_accepted() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let mut encoder =
        flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(&question(1 << 10)).unwrap();
    let (status, answer) = post(&gateway, "deflate", encoder.finish().unwrap()).await;
    assert_eq!(status, 200, "{answer}");
}

/// A zstd frame with one space.
const ONE_SPACE: [u8; 10] = [0x28, 0xb5, 0x2f, 0xfd, 0, 0, 0x09, 0, 0, b' '];

/// A zstd frame without content.
const EMPTY: [u8; 9] = [0x28, 0xb5, 0x2f, 0xfd, 0, 0, 0x01, 0, 0];

/// A zstd frame that decoders skip.
const SKIPPED: [u8; 11] = [0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];

#[tokio::test(flavor = "multi_thread")]
async fn body_of_several_frames_is_accepted() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let body = question(1 << 10);
    let (head, tail) = body.split_at(300);
    for encoding in ["zstd", "gzip"] {
        let frames = [compress(encoding, head), compress(encoding, tail)].concat();
        let (status, answer) = post(&gateway, encoding, frames).await;
        assert_eq!(status, 200, "{encoding}: {answer}");
    }
    let (head, tail) = (compress("zstd", head), compress("zstd", tail));
    let frames: [&[u8]; 6] = [&SKIPPED, &head, &EMPTY, &ONE_SPACE, &tail, &SKIPPED];
    let (status, answer) = post(&gateway, "zstd", frames.concat()).await;
    assert_eq!(status, 200, "{answer}");
    let cut = [&*compress("zstd", &body), &SKIPPED[..10]].concat();
    let (status, answer) = post(&gateway, "zstd", cut).await;
    assert_eq!(status, 400, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn body_of_too_many_frames_is_refused() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let member = compress("gzip", b" ");
    let empty_member = compress("gzip", b"");
    for (encoding, name, frame) in [
        ("zstd", "zstd frames", &ONE_SPACE[..]),
        ("zstd", "zstd frames", &EMPTY),
        ("zstd", "zstd frames", &SKIPPED),
        ("gzip", "gzip members", &member),
        ("gzip", "gzip members", &empty_member),
    ] {
        let rest = compress(encoding, &question(1));
        for (count, expected) in [(1023, 200), (1024, 400)] {
            let body = [frame.repeat(count), rest.clone()].concat();
            let (status, answer) = post(&gateway, encoding, body).await;
            assert_eq!(status, expected, "{count} {name} of {} bytes: {answer}", frame.len());
            if expected == 400 {
                let message = answer["error"]["message"].as_str().unwrap();
                assert!(message.contains(&format!("at most 1024 {name}")), "{message}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn body_that_decompresses_beyond_the_limit_is_refused() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let bomb = vec![b' '; 65 << 20];
    for encoding in ENCODINGS {
        let compressed = compress(encoding, &bomb);
        assert!(compressed.len() < 1 << 20, "{encoding}: {}", compressed.len());
        let (status, answer) = post(&gateway, encoding, compressed).await;
        assert_eq!(status, 413, "{encoding}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        let expected = "the decompressed body exceeds the limit of 64 MiB; ";
        assert!(message.starts_with(expected), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_compressed_bodies_are_refused() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let mut random = TestRng::new(7);
    for encoding in ENCODINGS {
        let whole = compress(encoding, &question(4 << 10));
        for case in 0..40 {
            let mut body = whole.clone();
            if case % 2 == 0 {
                body.truncate(random.below(whole.len()));
            } else {
                let index = random.below(whole.len());
                body[index] ^= 1 << random.below(8);
            }
            // A change may keep the content intact, for example in gzip's header.
            let (status, answer) = post(&gateway, encoding, body).await;
            assert!(matches!(status, 200 | 400 | 404), "{encoding} {case}: {status} {answer}");
        }
        let (status, answer) = post(&gateway, encoding, whole[..whole.len() / 2].to_vec()).await;
        assert_eq!(status, 400, "{encoding}: {answer}");
    }
    let (status, answer) = post(&gateway, "zstd", question(1)).await;
    assert_eq!(status, 400, "{answer}");
    assert_eq!(
        answer["error"]["message"],
        "the body is not valid zstd: a frame header is truncated or invalid; check that \
         `content-encoding` matches the body"
    );
    for encoding in ["lz4", "gzip, br", "compress"] {
        let (status, answer) = post(&gateway, encoding, question(1)).await;
        assert_eq!(status, 415, "{encoding}: {answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("zstd"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_requests_of_other_paths_are_refused_at_once() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let headers = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let paths =
        ["/v1/realtime", "/v1/messages", "/", "/healthz", "/readyz", "/metrics", "/v1/models"];
    for path in paths {
        let (status, _, body) = gateway.send("GET", path, Vec::new(), &headers).await;
        assert_eq!(status, 426, "{path}: {body:?}");
    }
    assert_eq!(gateway.requests(), 0);
}
