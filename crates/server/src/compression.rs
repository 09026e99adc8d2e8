//! Compressed answers. They pass to a caller of the same dialect as they came; to be read, they are inflated beside that.
//!
//! What a caller accepts is told to the provider as far as it can be read here, so no answer comes in a coding that
//! nobody knows.

use std::io::{self, Write};

use brotli_decompressor::DecompressorWriter;
use bytes::Bytes;
use flate2::write::{MultiGzDecoder, ZlibDecoder};
use throughline_core::Name;

use crate::answer::LARGEST_ANSWER;

/// The codings that can be read.
const READABLE: [&str; 5] = ["gzip", "x-gzip", "deflate", "br", "identity"];
/// The largest inflated piece: a few compressed bytes can stand for any number.
const LARGEST: usize = LARGEST_ANSWER;
/// How much is inflated at a time.
const STEP: usize = 4096;

/// What of an `accept-encoding` can be read here, if anything.
pub(crate) fn readable(accepted: &str) -> Option<Name> {
    let all = accepted.split(',').map(str::trim);
    let kept: Vec<&str> = all.filter(|coding| is_readable(coding)).collect();
    (!kept.is_empty()).then(|| Name::from(kept.join(", ")))
}

fn is_readable(coding: &str) -> bool {
    let name = coding.split(';').next().unwrap_or_default().trim();
    READABLE.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Whether an answer of that `content-encoding` can be inflated.
pub(crate) fn can_inflate(encoding: Option<&str>) -> bool {
    !matches!(Inflater::of(encoding), Inflater::Unreadable)
}

/// A whole answer, inflated.
pub(crate) fn inflated(encoding: Option<&str>, body: &Bytes) -> io::Result<Bytes> {
    let mut inflater = Inflater::of(encoding);
    inflater.push(body)
}

/// Inflates an answer piece by piece.
pub(crate) enum Inflater {
    /// It is not compressed.
    Plain,
    Gzip(MultiGzDecoder<Inflated>),
    Deflate(ZlibDecoder<Inflated>),
    Brotli(Box<DecompressorWriter<Inflated>>),
    /// Nobody here can read it, or no more.
    Unreadable,
}

impl Inflater {
    /// For an answer of that `content-encoding`.
    pub(crate) fn of(encoding: Option<&str>) -> Self {
        let encoding = encoding.unwrap_or("identity").trim().to_ascii_lowercase();
        match &*encoding {
            "" | "identity" => Self::Plain,
            "gzip" | "x-gzip" => Self::Gzip(MultiGzDecoder::new(Inflated::default())),
            "deflate" => Self::Deflate(ZlibDecoder::new(Inflated::default())),
            "br" => Self::Brotli(Box::new(DecompressorWriter::new(Inflated::default(), STEP))),
            _ => Self::Unreadable,
        }
    }

    /// What can be read now that these bytes have come.
    pub(crate) fn push(&mut self, bytes: &Bytes) -> io::Result<Bytes> {
        let read = match self {
            Self::Plain => return Ok(bytes.clone()),
            Self::Gzip(decoder) => through(decoder, bytes).map(|()| decoder.get_mut().take()),
            Self::Deflate(decoder) => through(decoder, bytes).map(|()| decoder.get_mut().take()),
            Self::Brotli(decoder) => through(decoder, bytes).map(|()| decoder.get_mut().take()),
            Self::Unreadable => Err(io::Error::other("the answer's compression cannot be read")),
        };
        if read.is_err() {
            *self = Self::Unreadable;
        }
        read
    }
}

fn through(decoder: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    decoder.write_all(bytes)?;
    decoder.flush()
}

/// Inflated bytes that were not taken yet.
#[derive(Default)]
pub(crate) struct Inflated {
    bytes: Vec<u8>,
}

impl Inflated {
    fn take(&mut self) -> Bytes {
        std::mem::take(&mut self.bytes).into()
    }
}

impl Write for Inflated {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > LARGEST {
            return Err(io::Error::other("the answer inflates to more than 64 MiB at once"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
