//! Decodes and writes the escapes in JSON strings.

use std::cell::RefCell;
use std::ops::Range;

use crate::SyntaxError;

/// Number of bytes that are tested at once in a `u64`.
const WORD: usize = 8;
/// Number of bytes that are copied or skipped at once. In prose and code, the text between two
/// escapes usually fits into one window.
const WINDOW: usize = 32;
/// Length in bytes up to which a text is tested for special bytes before it is written.
const SHORT: usize = 32;

/// Checks that a text is valid UTF-8 and shorter than 4 GiB. The bytes before `from` are known to
/// be valid.
pub(super) fn check(text: &[u8], from: usize) -> Result<(), SyntaxError> {
    if let Err(error) = simdutf8::compat::from_utf8(text.get(from..).unwrap_or_default()) {
        let problem = "the text is not valid UTF-8";
        return Err(SyntaxError::at(text, from + error.valid_up_to(), problem));
    }
    match u32::try_from(text.len()) {
        Ok(_) => Ok(()),
        Err(_) => Err(SyntaxError::at(&[], 0, "the text is larger than 4 GiB")),
    }
}

/// Iterates over the offsets of the bytes that a JSON string must escape: quotes, backslashes and,
/// if `CONTROLS` is set, control characters.
pub(super) struct Specials<'t, const CONTROLS: bool> {
    rest: &'t [u8],
    /// The end offset of the current word.
    end: usize,
    /// The high bit of each special byte in the current word.
    found: u64,
    /// The end offset of the current window, which contains special bytes and is scanned word by
    /// word.
    window: usize,
}

impl<'t, const CONTROLS: bool> Specials<'t, CONTROLS> {
    pub(super) fn starting_at(from: usize, text: &'t [u8]) -> Self {
        Self { rest: text.get(from..).unwrap_or_default(), end: from, found: 0, window: from }
    }
}

impl<const CONTROLS: bool> Specials<'_, CONTROLS> {
    /// Skips to the next window that contains special bytes. Most of a long text is plain, so whole
    /// windows are tested at once.
    #[inline]
    fn skip_plain(&mut self) {
        while let Some((window, rest)) = self.rest.split_first_chunk::<WINDOW>() {
            if !is_plain::<CONTROLS>(window) {
                break;
            }
            self.rest = rest;
            self.end += WINDOW;
        }
        self.window = self.end + WINDOW;
    }
}

impl<const CONTROLS: bool> Iterator for Specials<'_, CONTROLS> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.found == 0 {
            if self.end >= self.window {
                self.skip_plain();
            }
            let word = match self.rest.split_first_chunk::<WORD>() {
                Some((word, rest)) => {
                    self.rest = rest;
                    *word
                }
                None if self.rest.is_empty() => return None,
                None => last_word(std::mem::take(&mut self.rest)),
            };
            self.end += WORD;
            self.found = specials_in::<CONTROLS>(word);
        }
        let place = self.end - WORD + self.found.trailing_zeros() as usize / 8;
        self.found &= self.found - 1;
        Some(place)
    }
}

/// Whether a window contains no special byte.
fn is_plain<const CONTROLS: bool>(window: &[u8; WINDOW]) -> bool {
    // A fold without early exit lets the compiler vectorise the loop.
    let special = window.iter().fold(0, |found, byte| {
        let is_control = CONTROLS && *byte < 0x20;
        found | u8::from(is_control) | u8::from(*byte == b'"') | u8::from(*byte == b'\\')
    });
    special == 0
}

/// Returns the last few bytes of a text, padded with spaces.
fn last_word(rest: &[u8]) -> [u8; WORD] {
    let mut word = [b' '; WORD];
    for (place, byte) in word.iter_mut().zip(rest) {
        *place = *byte;
    }
    word
}

/// Sets the high bit of each special byte.
fn specials_in<const CONTROLS: bool>(word: [u8; WORD]) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let word = u64::from_le_bytes(word);
    let low = word & (ONES * 0x7f);
    // Each sum sets the high bit of every byte that is not of its kind. No byte carries into the
    // next byte.
    let control = if CONTROLS { low + ONES * 0x60 } else { ONES * 0x80 };
    let quote = (low ^ (ONES * 0x22)) + ONES * 0x7f;
    let slash = (low ^ (ONES * 0x5c)) + ONES * 0x7f;
    !((control & quote & slash) | word) & (ONES * 0x80)
}

/// A string that contains escapes. `inner` is the byte range between the quotes in `text`.
/// `escapes` contains the offsets in `text` of this string's backslashes, followed by those of
/// later strings.
pub(super) struct Escaped<'t> {
    pub(super) text: &'t [u8],
    pub(super) inner: Range<usize>,
    pub(super) escapes: &'t [u32],
}

impl Escaped<'_> {
    /// Unescapes the string into a reused buffer and passes the result to `take`. A lone surrogate
    /// becomes U+FFFD, because UTF-8 cannot represent it.
    pub(super) fn read<T>(&self, take: impl FnOnce(&[u8]) -> T) -> T {
        thread_local! {
            static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        SCRATCH.with_borrow_mut(|value| {
            value.clear();
            self.unescape_into(value);
            let result = take(value);
            value.shrink_to(1 << 20);
            result
        })
    }

    fn unescape_into(&self, value: &mut Vec<u8>) {
        value.reserve(self.inner.len() + WINDOW);
        let mut from = self.inner.start;
        let escapes = self.escapes.iter().map(|escape| *escape as usize);
        for escape in escapes.take_while(|escape| *escape < self.inner.end) {
            // Skip the low half of a surrogate pair, which was decoded together with the high half.
            if escape >= from {
                self.push_plain(from..escape, value);
                from = self.unescape(escape + 1, value);
            }
        }
        self.push_plain(from..self.inner.end, value);
    }

    fn push_plain(&self, run: Range<usize>, value: &mut Vec<u8>) {
        let window = self.text.get(run.start..).and_then(|rest| rest.first_chunk::<WINDOW>());
        match window {
            // Copying a fixed length and truncating the excess is faster than copying the exact
            // length.
            Some(window) if run.len() <= WINDOW => {
                value.extend_from_slice(window);
                value.truncate(value.len() + run.len() - WINDOW);
            }
            Some(_) | None => value.extend_from_slice(self.text.get(run).unwrap_or_default()),
        }
    }

    /// Decodes an escape, given the offset `at` of the character after the backslash. Returns the
    /// offset after the escape.
    #[inline]
    fn unescape(&self, at: usize, value: &mut Vec<u8>) -> usize {
        let plain = match self.text.get(at) {
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'r') => b'\r',
            Some(b'b') => 0x08,
            Some(b'f') => 0x0c,
            Some(b'u') => return self.unescape_unicode(at + 1, value),
            Some(other) => *other,
            None => return at,
        };
        value.push(plain);
        at + 1
    }

    fn unescape_unicode(&self, at: usize, value: &mut Vec<u8>) -> usize {
        let unit = |at: usize| hex4(self.text.get(at..)?);
        let mut point = unit(at).unwrap_or(0xD800);
        let mut end = at + 4;
        if (0xD800..0xDC00).contains(&point)
            && self.text.get(end..end + 2) == Some(b"\\u")
            && let Some(low) = unit(end + 2).filter(|unit| (0xDC00..0xE000).contains(unit))
        {
            point = 0x1_0000 + ((point - 0xD800) << 10) + (low - 0xDC00);
            end += 6;
        }
        let character = char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER);
        value.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        end
    }
}

/// Converts bytes that are known to be UTF-8, because the whole text was validated and escapes
/// decode to whole characters.
pub(super) fn as_checked_str(bytes: &[u8]) -> &str {
    // For short texts, the standard check is faster than the SIMD check.
    if bytes.len() < 64 {
        return std::str::from_utf8(bytes).unwrap_or_default();
    }
    simdutf8::basic::from_utf8(bytes).unwrap_or_default()
}

pub(super) fn hex4(text: &[u8]) -> Option<u32> {
    let mut digits = text.get(..4)?.iter().map(|byte| char::from(*byte).to_digit(16));
    digits.try_fold(0, |unit, digit| Some((unit << 4) | digit?))
}

/// Writes `value` in quotes with only the escapes that JSON requires.
pub(super) fn push_quoted(out: &mut Vec<u8>, value: &str) {
    let value = value.as_bytes();
    out.reserve(value.len() + 2);
    out.push(b'"');
    let mut written = 0;
    // Most short texts are the names of members, which contain no special byte.
    if value.len() > SHORT || has_specials(value) {
        for at in Specials::<true>::starting_at(0, value) {
            out.extend_from_slice(value.get(written..at).unwrap_or_default());
            push_escape(out, value.get(at).copied().unwrap_or_default());
            written = at + 1;
        }
    }
    out.extend_from_slice(value.get(written..).unwrap_or_default());
    out.push(b'"');
}

/// Whether a short text contains a byte that a JSON string must escape.
fn has_specials(value: &[u8]) -> bool {
    let is_special = |byte: &u8| matches!(byte, ..0x20 | b'"' | b'\\');
    let Some(last) = value.last_chunk() else { return value.iter().any(is_special) };
    // The last word may overlap the word before it, so that no byte is left over.
    let words = value.as_chunks().0.iter().chain([last]);
    words.fold(0, |found, word| found | specials_in::<true>(*word)) != 0
}

fn push_escape(out: &mut Vec<u8>, special: u8) {
    match special {
        b'"' => out.extend_from_slice(b"\\\""),
        b'\\' => out.extend_from_slice(b"\\\\"),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        0x08 => out.extend_from_slice(b"\\b"),
        0x0c => out.extend_from_slice(b"\\f"),
        other => out.extend_from_slice(format!("\\u{other:04x}").as_bytes()),
    }
}
