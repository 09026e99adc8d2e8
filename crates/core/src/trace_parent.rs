//! The W3C Trace Context header `traceparent`, which links a call to the caller's trace.

use std::fmt;

use crate::name::{hex, unhex};

/// A trace id and span id, as in a `traceparent` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceParent {
    /// The trace id, never all zeros in a parsed header.
    pub trace: [u8; 16],
    /// The span id, never all zeros in a parsed header.
    pub span: [u8; 8],
    /// Whether the caller records this trace (the sampled flag).
    pub is_sampled: bool,
}

impl TraceParent {
    /// The name of the header.
    pub const HEADER: &'static str = "traceparent";

    /// Parses the header; `None` if it is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let (version, trace, span, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let [version] = parse_hex::<1>(version)?;
        // Later versions may append fields, version 0 may not, and version 0xff is invalid.
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        let (trace, span, [flags]) =
            (parse_hex::<16>(trace)?, parse_hex::<8>(span)?, parse_hex::<1>(flags)?);
        if trace == [0; 16] || span == [0; 8] {
            return None;
        }
        Some(Self { trace, span, is_sampled: flags & 1 == 1 })
    }

    /// Returns the same trace with another span.
    #[must_use]
    pub fn with_span(self, span: [u8; 8]) -> Self {
        Self { span, ..self }
    }

    /// Returns the trace id as lower-case hexadecimal digits.
    pub fn trace_hex(&self) -> String {
        hex(&self.trace)
    }

    /// Returns the span id as lower-case hexadecimal digits.
    pub fn span_hex(&self) -> String {
        hex(&self.span)
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.is_sampled);
        write!(f, "00-{}-{}-{flags:02x}", hex(&self.trace), hex(&self.span))
    }
}

/// Decodes exactly `N` bytes from lower-case hexadecimal digits.
fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_lower_case = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    unhex(text).filter(|_| is_lower_case)?.as_ref().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn traceparent_round_trips() {
        assert_eq!(TraceParent::parse(HEADER).unwrap().to_string(), HEADER);
        let later = "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-more";
        let read = TraceParent::parse(later).unwrap();
        assert_eq!(read.to_string(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00");
    }

    #[test]
    fn invalid_traceparent_is_rejected() {
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
