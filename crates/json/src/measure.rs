//! Counts the values in a request's JSON text in one pass, without an index or allocation.
//!
//! An index over a text with many short values takes several times the memory of the text, and
//! decoding takes even more. A request with too many values is therefore refused before it is
//! indexed. This pass does not validate the text: for invalid JSON, the counts are meaningless, and
//! the parser later reports the error.

/// The numbers of values, messages and tools in a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measure {
    /// The number of values plus the number of member names.
    pub entries: usize,
    /// The number of messages and parts. In every array of the outermost object except `tools`,
    /// each element counts once per part, or once if it has no parts. Every member of the outermost
    /// object also counts. The request may be wrapped in one more object.
    pub items: usize,
    /// The number of elements in the `tools` array of the outermost object, plus the declarations
    /// nested in these elements.
    pub tools: usize,
}

/// Upper limits for the counts in a [`Measure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeLimits {
    /// Maximum number of values and member names.
    pub entries: usize,
    /// Maximum number of messages and parts.
    pub items: usize,
    /// Maximum number of tools.
    pub tools: usize,
}

impl SizeLimits {
    /// The gateway's default limits. They allow conversations of a million tokens, which is about
    /// 4 MB of text. A typical item has hundreds of bytes and at most about 20 entries.
    pub const DEFAULT: Self = Self { entries: 400_000, items: 20_000, tools: 4_096 };

    /// Accepts requests of any size.
    pub const NONE: Self = Self { entries: usize::MAX, items: usize::MAX, tools: usize::MAX };
}

impl Default for SizeLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The limit in [`SizeLimits`] that a request exceeds. Each variant contains the configured value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeLimitExceeded {
    /// Too many values and member names.
    #[error("the request has more than {0} JSON values and member names (entry_limit)")]
    Entries(usize),
    /// Too many messages and parts.
    #[error("the request has more than {0} messages and parts (item_limit)")]
    Items(usize),
    /// Too many tools.
    #[error("the request has more than {0} tools (tool_limit)")]
    Tools(usize),
}

impl Measure {
    /// Counts the values in a JSON text. Fails as soon as a limit is exceeded.
    pub fn count(text: &[u8], limits: &SizeLimits) -> Result<Self, SizeLimitExceeded> {
        let objects = [0; TRACKED_DEPTH / 64];
        let mut counter = Counter {
            counted: Self::default(),
            depth: 0,
            objects,
            last: 0,
            is_tools: false,
            has_part: false,
        };
        let mut at = 0;
        while let Some(byte) = text.get(at) {
            at += 1;
            match byte {
                b' ' | b'\n' | b'\r' | b'\t' => continue,
                b'"' => {
                    let end = string_end(text, at);
                    counter.string(text.get(at..end.saturating_sub(1)).unwrap_or_default());
                    at = end;
                }
                b'{' | b'[' => counter.open(*byte),
                b'}' | b']' => counter.close(),
                b',' | b':' => counter.last = *byte,
                _ => {
                    counter.value(false);
                    let rest = text.get(at..).unwrap_or_default();
                    let ends = |byte: &u8| {
                        matches!(byte, b',' | b']' | b'}' | b' ' | b'\n' | b'\r' | b'\t')
                    };
                    at += rest.iter().position(ends).unwrap_or(rest.len());
                }
            }
            counter.check(limits)?;
        }
        Ok(counter.counted)
    }
}

/// Returns the offset after the closing quote of a string whose content begins at `at`.
fn string_end(text: &[u8], mut at: usize) -> usize {
    while let Some(found) = memchr::memchr2(b'"', b'\\', text.get(at..).unwrap_or_default()) {
        at += found + 1;
        if text.get(at - 1) == Some(&b'"') {
            return at;
        }
        at += 1;
    }
    text.len()
}

/// Maximum depth at which arrays and objects are distinguished. Deeper containers are treated as
/// arrays, which does not affect the counts.
const TRACKED_DEPTH: usize = 4096;

struct Counter {
    counted: Measure,
    depth: usize,
    /// One bit per open container, outermost first: 1 for an object, 0 for an array.
    objects: [u64; TRACKED_DEPTH / 64],
    /// The last structural byte; `"` after a member name and `0` after a value.
    last: u8,
    /// Whether the scan is inside the `tools` member of the outermost object.
    is_tools: bool,
    /// Whether the current element has a part. If so, its parts are counted and the element is not.
    has_part: bool,
}

impl Counter {
    /// Whether the container at that depth is an object. The outermost container has depth 1.
    fn is_object(&self, depth: usize) -> bool {
        let place = depth.wrapping_sub(1);
        self.objects.get(place / 64).is_some_and(|bits| bits >> (place % 64) & 1 == 1)
    }

    fn open(&mut self, byte: u8) {
        self.value(byte == b'{');
        let place = self.depth;
        self.depth += 1;
        if let Some(bits) = self.objects.get_mut(place / 64) {
            *bits = *bits & !(1 << (place % 64)) | u64::from(byte == b'{') << (place % 64);
        }
        self.last = byte;
    }

    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.last = b'0';
    }

    fn string(&mut self, inner: &[u8]) {
        if self.is_object(self.depth) && matches!(self.last, b'{' | b',') {
            self.counted.entries += 1;
            if self.depth <= 2 {
                self.is_tools = inner == b"tools";
                self.counted.items += 1;
            }
            self.last = b'"';
        } else {
            self.value(false);
        }
    }

    /// Counts a value in the innermost open container.
    fn value(&mut self, is_object: bool) {
        self.counted.entries += 1;
        self.last = b'0';
        if self.is_object(self.depth) || !self.is_object(1) {
            return;
        }
        // A wrapped request is one level deeper.
        match self.depth.saturating_sub(usize::from(self.is_object(2))) {
            2 if self.is_tools => self.counted.tools += 1,
            3 | 4 if self.is_tools => self.counted.tools += usize::from(is_object),
            2 => {
                self.counted.items += 1;
                self.has_part = false;
            }
            3 => self.counted.items += 1,
            4 if self.has_part => self.counted.items += 1,
            4 => self.has_part = true,
            _ => {}
        }
    }

    fn check(&self, limits: &SizeLimits) -> Result<(), SizeLimitExceeded> {
        let Measure { entries, items, tools } = self.counted;
        if entries > limits.entries {
            Err(SizeLimitExceeded::Entries(limits.entries))
        } else if items > limits.items {
            Err(SizeLimitExceeded::Items(limits.items))
        } else if tools > limits.tools {
            Err(SizeLimitExceeded::Tools(limits.tools))
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
#[path = "measure_tests.rs"]
mod measure_tests;
