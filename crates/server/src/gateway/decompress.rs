//! Decompresses request bodies. Coding agents compress large requests.
//!
//! The output is limited like an uncompressed body, and its memory is reserved while it grows, so
//! that a small body that decompresses to an enormous one costs little. The work on a large body is
//! queued like other work on large bodies.

use std::io::{self, ErrorKind, Read};

use brotli_decompressor::Decompressor;
use bytes::Bytes;
use flate2::bufread::GzDecoder;
use flate2::read::{DeflateDecoder, ZlibDecoder};
use ruzstd::decoding::errors::FrameDecoderError;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use crate::access::Caller;
use crate::error::{GatewayError, GatewayResult};
use crate::telemetry::{MemoryReservation, Telemetry, exceeds_limit};

/// Size of the buffer that receives decompressed bytes.
const BUFFER: usize = 64 << 10;

/// Maximum number of bytes that are decompressed before other tasks run.
const MAX_STEP: usize = 1 << 20;

/// Maximum window of a zstd frame. RFC 9659 sets this limit for HTTP.
const MAX_ZSTD_WINDOW: u64 = 8 << 20;

/// Maximum number of zstd frames or gzip members in a body. Each of them takes time, even if it is
/// empty.
const MAX_FRAMES: usize = 1024;

/// Decompresses a body with this `content-encoding`, up to `limit` bytes.
pub(crate) async fn decompress(
    operations: &Telemetry,
    caller: &Caller,
    encoding: &str,
    body: Bytes,
    limit: usize,
    room: &mut MemoryReservation,
) -> GatewayResult<Bytes> {
    let encoding = encoding.trim().to_ascii_lowercase();
    let mut decoder: Box<dyn Read + Send> = match &*encoding {
        "" | "identity" => return Ok(body),
        "gzip" | "x-gzip" => Box::new(GzipDecoder::new(&body)),
        // Some clients send a deflate stream without the zlib header that HTTP requires.
        "deflate" if has_zlib_header(&body) => Box::new(ZlibDecoder::new(&*body)),
        "deflate" => Box::new(DeflateDecoder::new(&*body)),
        "br" => Box::new(Decompressor::new(&*body, BUFFER)),
        "zstd" => Box::new(ZstdDecoder::new(&body)),
        _ => {
            let message = format!(
                "content-encoding `{encoding}` is not supported; use zstd, gzip, deflate or br, or \
                 send the body uncompressed"
            );
            return Err(GatewayError::new(415, message));
        }
    };
    let mut buffer = vec![0; BUFFER];
    let mut text = Vec::new();
    loop {
        // The text at most doubles in one step, so that a small body reserves little.
        let end = text.len() + text.len().clamp(BUFFER, MAX_STEP);
        let end = end.min(limit.saturating_add(1));
        // Memory is reserved before the work is queued, because the wait for it may be long.
        room.reserve_text(end).await?;
        let length = body.len().max(text.len());
        let step = async { read_until(&mut *decoder, &mut text, end, &mut buffer) };
        let has_ended = operations.heavy.run(caller, length, step).await?;
        let has_ended = has_ended.map_err(|error| unreadable(&encoding, &error))?;
        if text.len() > limit {
            return Err(exceeds_limit("the decompressed body", limit));
        }
        if has_ended {
            return Ok(text.into());
        }
        tokio::task::yield_now().await;
    }
}

/// Decompresses until the text has `end` bytes. Returns whether the stream ended.
fn read_until(
    decoder: &mut dyn Read,
    text: &mut Vec<u8>,
    end: usize,
    buffer: &mut [u8],
) -> io::Result<bool> {
    while text.len() < end {
        let free = buffer.len().min(end - text.len());
        let count = decoder.read(buffer.get_mut(..free).unwrap_or_default())?;
        if count == 0 {
            return Ok(true);
        }
        text.extend_from_slice(buffer.get(..count).unwrap_or_default());
    }
    Ok(false)
}

fn unreadable(encoding: &str, error: &io::Error) -> GatewayError {
    if error.kind() == ErrorKind::QuotaExceeded {
        return GatewayError::new(400, format!("the body has too many parts: {error}"));
    }
    let message = format!(
        "the body is not valid {encoding}: {error}; check that `content-encoding` matches the body"
    );
    GatewayError::new(400, message)
}

/// Returns whether a body starts with a zlib header, whose two bytes are a multiple of 31.
fn has_zlib_header(body: &[u8]) -> bool {
    let header = body.first_chunk().map(|header| u16::from_be_bytes(*header));
    header.is_some_and(|header| header >> 8 & 0x0f == 8 && header % 31 == 0)
}

/// Counts the frames or members of a body, up to [`MAX_FRAMES`].
#[derive(Default)]
struct FrameCount(usize);

impl FrameCount {
    /// Counts another frame. `name` is the format's name for several frames.
    fn add(&mut self, name: &str) -> io::Result<()> {
        self.0 += 1;
        if self.0 > MAX_FRAMES {
            let message =
                format!("at most {MAX_FRAMES} {name} are allowed; compress the body in one piece");
            return Err(io::Error::new(ErrorKind::QuotaExceeded, message));
        }
        Ok(())
    }
}

/// Decodes one gzip member after the other.
struct GzipDecoder<'b> {
    member: GzDecoder<&'b [u8]>,
    count: FrameCount,
}

impl<'b> GzipDecoder<'b> {
    fn new(body: &'b [u8]) -> Self {
        Self { member: GzDecoder::new(body), count: FrameCount(1) }
    }
}

impl Read for GzipDecoder<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.member.read(buffer)?;
            let rest = *self.member.get_ref();
            if count > 0 || rest.is_empty() {
                return Ok(count);
            }
            self.count.add("gzip members")?;
            self.member.reset(rest);
        }
    }
}

/// Decodes one zstd frame after the other.
struct ZstdDecoder<'b> {
    rest: &'b [u8],
    frame: Option<StreamingDecoder<&'b [u8], FrameDecoder>>,
    count: FrameCount,
}

impl<'b> ZstdDecoder<'b> {
    fn new(body: &'b [u8]) -> Self {
        Self { rest: body, frame: None, count: FrameCount::default() }
    }

    /// Checks the checksum of a frame that ended, if the frame has one.
    fn end_frame(&mut self) -> io::Result<()> {
        let Some(frame) = self.frame.take() else { return Ok(()) };
        let (rest, decoder) = frame.into_parts();
        self.rest = rest;
        let expected = decoder.get_checksum_from_data();
        if expected.is_some() && expected != decoder.get_calculated_checksum() {
            return Err(io::Error::other("a checksum does not match"));
        }
        Ok(())
    }

    /// Starts the next frame, or skips it if it contains no text.
    fn next_frame(&mut self) -> io::Result<()> {
        self.count.add("zstd frames")?;
        if let Some(length) = skippable_length(self.rest) {
            self.rest = self.rest.get(length..).ok_or(ErrorKind::UnexpectedEof)?;
            return Ok(());
        }
        let frame = StreamingDecoder::new_with_max_window_size(self.rest, MAX_ZSTD_WINDOW);
        self.frame = Some(frame.map_err(|error| io::Error::other(header_problem(&error)))?);
        Ok(())
    }
}

impl Read for ZstdDecoder<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                let read = frame.read(buffer);
                let count =
                    read.map_err(|_| io::Error::other("a block is truncated or invalid"))?;
                if count > 0 {
                    return Ok(count);
                }
                self.end_frame()?;
            }
            if self.rest.is_empty() {
                return Ok(0);
            }
            self.next_frame()?;
        }
    }
}

/// Describes why a zstd frame cannot be decoded. The decoder's own messages contain debug values.
fn header_problem(error: &FrameDecoderError) -> &'static str {
    match error {
        FrameDecoderError::WindowSizeTooBig { .. } => "a frame has a window of more than 8 MiB",
        FrameDecoderError::DictNotProvided { .. } => "a frame needs a dictionary",
        _ => "a frame header is truncated or invalid",
    }
}

/// Returns the length of the skippable zstd frame at the start of a body, with its header; `None`
/// if the body starts with another frame. RFC 8878 defines these frames for metadata.
fn skippable_length(body: &[u8]) -> Option<usize> {
    let (magic, rest) = body.split_first_chunk()?;
    let (length, _) = rest.split_first_chunk()?;
    let is_skippable = u32::from_le_bytes(*magic) & !0xf == 0x184d_2a50;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    is_skippable.then_some(8_usize.saturating_add(length))
}
