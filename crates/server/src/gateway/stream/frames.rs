//! Finds the boundaries of frames that end with an empty line.

/// Returns the length of the first frame, or the length of all bytes if they contain no complete
/// frame.
pub(super) fn frame_length(bytes: &[u8]) -> usize {
    let mut begin = 0;
    while let Some(at) = bytes.get(begin..).and_then(|rest| memchr::memchr(b'\n', rest)) {
        let end = begin + at + 1;
        let rest = bytes.get(end..).unwrap_or_default();
        match rest {
            [b'\n', ..] => return end + 1,
            [b'\r', b'\n', ..] => return end + 2,
            _ => begin = end,
        }
    }
    bytes.len()
}

/// Returns the length of all complete frames.
pub(super) fn complete_frames(bytes: &[u8]) -> usize {
    let mut end = 0;
    while let Some(rest) = bytes.get(end..).filter(|rest| !rest.is_empty()) {
        let length = frame_length(rest);
        let is_complete = rest
            .get(..length)
            .is_some_and(|frame| frame.ends_with(b"\n\n") || frame.ends_with(b"\n\r\n"));
        if !is_complete {
            break;
        }
        end += length;
    }
    end
}
