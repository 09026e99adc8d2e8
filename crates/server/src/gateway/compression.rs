//! Inflates compressed responses for decoding. A caller of the same dialect gets the compressed
//! bytes unchanged.
//!
//! `Accept-Encoding` is narrowed to the encodings that the gateway can decode, so that providers
//! use no other encoding.

use std::io::{self, Write};

use brotli_decompressor::DecompressorWriter;
use bytes::Bytes;
use flate2::write::{MultiGzDecoder, ZlibDecoder};
use throughline_json::Name;

use crate::gateway::answer::LARGEST_ANSWER;

const READABLE: [&str; 5] = ["gzip", "x-gzip", "deflate", "br", "identity"];
/// Maximum size of one inflated chunk, because a few compressed bytes can inflate to any size.
const MAX_INFLATED: usize = LARGEST_ANSWER;
/// The buffer size of the Brotli decoder.
const STEP: usize = 4096;

/// Narrows an `accept-encoding` header to the supported encodings; `None` if no supported encoding
/// is left.
pub(crate) fn narrow_accept_encoding(accepted: &str) -> Option<Name> {
    let all = accepted.split(',').map(str::trim);
    let rest: Vec<&str> = all.filter(|coding| is_supported(coding)).collect();
    (!rest.is_empty()).then(|| Name::from(rest.join(", ")))
}

fn is_supported(coding: &str) -> bool {
    let name = coding.split(';').next().unwrap_or_default().trim();
    READABLE.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Returns whether a response with this `content-encoding` can be inflated.
pub(crate) fn can_inflate(encoding: Option<&str>) -> bool {
    !matches!(Inflater::new(encoding), Inflater::Unreadable)
}

pub(crate) fn inflate(encoding: Option<&str>, body: &Bytes) -> io::Result<Bytes> {
    let mut inflater = Inflater::new(encoding);
    inflater.push(body)
}

/// Inflates a response chunk by chunk.
pub(crate) enum Inflater {
    /// The response is not compressed.
    Plain,
    Gzip(MultiGzDecoder<InflateBuffer>),
    Deflate(ZlibDecoder<InflateBuffer>),
    Brotli(Box<DecompressorWriter<InflateBuffer>>),
    /// The encoding is not supported, or the data is corrupt.
    Unreadable,
}

impl Inflater {
    pub(crate) fn new(encoding: Option<&str>) -> Self {
        let encoding = encoding.unwrap_or("identity").trim().to_ascii_lowercase();
        match &*encoding {
            "" | "identity" => Self::Plain,
            "gzip" | "x-gzip" => Self::Gzip(MultiGzDecoder::new(InflateBuffer::default())),
            "deflate" => Self::Deflate(ZlibDecoder::new(InflateBuffer::default())),
            "br" => Self::Brotli(Box::new(DecompressorWriter::new(InflateBuffer::default(), STEP))),
            _ => Self::Unreadable,
        }
    }

    /// Inflates the next bytes of a response.
    pub(crate) fn push(&mut self, bytes: &Bytes) -> io::Result<Bytes> {
        let read = match self {
            Self::Plain => return Ok(bytes.clone()),
            Self::Gzip(decoder) => {
                write_and_flush(decoder, bytes).map(|()| decoder.get_mut().take())
            }
            Self::Deflate(decoder) => {
                write_and_flush(decoder, bytes).map(|()| decoder.get_mut().take())
            }
            Self::Brotli(decoder) => {
                write_and_flush(decoder, bytes).map(|()| decoder.get_mut().take())
            }
            Self::Unreadable => Err(io::Error::other("cannot decompress the response body")),
        };
        if read.is_err() {
            *self = Self::Unreadable;
        }
        read
    }
}

fn write_and_flush(decoder: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    decoder.write_all(bytes)?;
    decoder.flush()
}

/// Output buffer of the decoders. Writes beyond [`MAX_INFLATED`] bytes fail.
#[derive(Default)]
pub(crate) struct InflateBuffer {
    bytes: Vec<u8>,
}

impl InflateBuffer {
    fn take(&mut self) -> Bytes {
        std::mem::take(&mut self.bytes).into()
    }
}

impl Write for InflateBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > MAX_INFLATED {
            return Err(io::Error::other(
                "a chunk of the response decompresses to more than 64 MiB",
            ));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
