//! The place of a call in somebody's trace: the header `traceparent` of the W3C's Trace Context.

use std::fmt;

/// A span of a trace, by its ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceParent {
    /// The trace.
    pub trace: [u8; 16],
    /// The span within it.
    pub span: [u8; 8],
    /// Whether whoever began the trace keeps it.
    pub is_sampled: bool,
}

impl TraceParent {
    /// The header's name.
    pub const HEADER: &'static str = "traceparent";

    /// What a header says; nothing where it is not one that can be gone on from.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let (version, trace, span, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let [version] = bytes::<1>(version)?;
        // A later version may say more behind this; the first says nothing else, and the last is none.
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        let (trace, span, [flags]) = (bytes::<16>(trace)?, bytes::<8>(span)?, bytes::<1>(flags)?);
        if trace == [0; 16] || span == [0; 8] {
            return None;
        }
        Some(Self { trace, span, is_sampled: flags & 1 == 1 })
    }

    /// The same trace, at another span.
    #[must_use]
    pub fn at(self, span: [u8; 8]) -> Self {
        Self { span, ..self }
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.is_sampled);
        write!(f, "00-{}-{}-{flags:02x}", Hex(&self.trace), Hex(&self.span))
    }
}

struct Hex<'b>(&'b [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Bytes that are written as so many lower-case digits.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() != 2 * N || !text.bytes().all(is_digit) {
        return None;
    }
    let mut out = [0; N];
    for (place, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_header_survives_reading_and_writing() {
        assert_eq!(TraceParent::parse(HEADER).unwrap().to_string(), HEADER);
        let later = "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-more";
        let read = TraceParent::parse(later).unwrap();
        assert_eq!(read.to_string(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00");
    }

    #[test]
    fn what_is_no_header_is_not_gone_on_from() {
        for text in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-ä7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(TraceParent::parse(text), None, "{text}");
        }
    }
}
