//! Counts what a request holds in one pass over its text, without an index and without allocation.
//!
//! An index over a text costs several times its bytes where values are short, and what is read from the index costs more.
//! A request with too many values is therefore refused here, before an index exists. The pass does not validate: what it
//! counts in a text that is not JSON means nothing, and the parser reports the error.

/// What the text of a request holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measure {
    /// All values and the names of all members.
    pub entries: usize,
    /// Messages and parts: members of the outermost object, elements of its lists, and elements of the lists in those. A
    /// message counts as its parts, or as one where it has none. A request may be wrapped in one more object.
    pub items: usize,
    /// Elements of the list `tools` of the outermost object, and the declarations in them.
    pub tools: usize,
}

/// The most that a request may hold of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeLimits {
    /// Of values and names of members.
    pub entries: usize,
    /// Of messages and parts.
    pub items: usize,
    /// Of tools.
    pub tools: usize,
}

impl SizeLimits {
    /// The limits of the gateway. They admit conversations of a million tokens, which are some four megabytes: an item has
    /// up to some 20 entries, and most have hundreds of bytes.
    pub const DEFAULT: Self = Self { entries: 400_000, items: 20_000, tools: 4_096 };

    /// No limits.
    pub const NONE: Self = Self { entries: usize::MAX, items: usize::MAX, tools: usize::MAX };
}

impl Default for SizeLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A request holds more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooMany {
    /// More values.
    #[error("the request has more than {0} JSON values and member names (entry_limit)")]
    Entries(usize),
    /// More messages and parts.
    #[error("the request has more than {0} messages and parts (item_limit)")]
    Items(usize),
    /// More tools.
    #[error("the request has more than {0} tools (tool_limit)")]
    Tools(usize),
}

impl Measure {
    /// Counts what a text holds, and stops at the first limit that it exceeds.
    pub fn of(text: &[u8], limits: &SizeLimits) -> Result<Self, TooMany> {
        let mut counter = Counter::default();
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

/// Where a string ends that begins at `at`, behind its opening quote: the place behind the closing quote.
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

/// How deep containers are told apart. Deeper ones count as lists, which changes nothing that is counted.
const TOLD_APART: usize = 4096;

struct Counter {
    counted: Measure,
    depth: usize,
    /// One bit for each open container, the outermost first: whether it is an object.
    objects: [u64; TOLD_APART / 64],
    /// The last byte that is neither white space nor inside a string; `"` for a string, `0` for any other value.
    last: u8,
    /// Whether the member `tools` of the outermost object is read.
    is_tools: bool,
    /// Whether the element that is read has a part already, which counts in its place.
    has_part: bool,
}

impl Default for Counter {
    fn default() -> Self {
        Self {
            counted: Measure::default(),
            depth: 0,
            objects: [0; TOLD_APART / 64],
            last: 0,
            is_tools: false,
            has_part: false,
        }
    }
}

impl Counter {
    /// Whether the container at that depth is an object; the outermost has the depth 1.
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

    /// Counts a value of the innermost container.
    fn value(&mut self, is_object: bool) {
        self.counted.entries += 1;
        self.last = b'0';
        if self.is_object(self.depth) || !self.is_object(1) {
            return;
        }
        // A request inside another object is one level deeper.
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

    fn check(&self, limits: &SizeLimits) -> Result<(), TooMany> {
        let Measure { entries, items, tools } = self.counted;
        if entries > limits.entries {
            Err(TooMany::Entries(limits.entries))
        } else if items > limits.items {
            Err(TooMany::Items(limits.items))
        } else if tools > limits.tools {
            Err(TooMany::Tools(limits.tools))
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
#[path = "measure_tests.rs"]
mod measure_tests;
