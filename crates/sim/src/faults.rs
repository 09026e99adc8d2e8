//! Injects failures into responses, to test how clients handle them.

use std::str::FromStr;

#[cfg(test)]
#[path = "faults_tests.rs"]
mod faults_tests;

/// A fault to inject, and the number of the request that it affects.
///
/// Parsed from `cut@200`, `429`, `429:30`, `500`, `503`, `529`, `stall`, `drip`, `garbage@100` or
/// `duplicate`. A suffix such as `#3` limits the fault to the third request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Kind of failure to inject.
    pub kind: FaultKind,
    /// Number of the only affected request, starting at 1; `None` if every request is affected.
    pub only: Option<u64>,
}

/// Kind of failure to inject into a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Closes the connection after this many bytes of the body.
    Cut(usize),
    /// Rejects the request with status 429, 500, 503 or 529. The second value is an optional
    /// `retry-after` in seconds.
    Status(u16, Option<u64>),
    /// Sends half of the response, then nothing until the client disconnects or the simulator
    /// stops.
    Stall,
    /// Sends the response one byte at a time.
    Drip,
    /// Inserts a few meaningless bytes at this offset of the body.
    Garbage(usize),
    /// Sends every frame of a stream twice.
    Duplicate,
}

/// Error for a string that cannot be parsed as a fault. Contains the string.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a fault: try cut@200, 429, 429:30, 500, 503, 529, stall, drip, garbage@100 or \
     duplicate; append #3 to affect the third request only"
)]
pub struct InvalidFault(pub String);

impl FromStr for Fault {
    type Err = InvalidFault;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidFault(text.to_owned());
        let (kind, only) = match text.trim().split_once('#') {
            Some((kind, number)) => {
                let number: u64 = number.parse().map_err(|_| invalid())?;
                (kind, Some(number).filter(|number| *number > 0).ok_or_else(invalid)?.into())
            }
            None => (text.trim(), None),
        };
        let kind = FaultKind::read(kind).ok_or_else(invalid)?;
        Ok(Self { kind, only })
    }
}

impl FaultKind {
    fn read(text: &str) -> Option<Self> {
        if let Some((name, offset)) = text.split_once('@') {
            let offset = offset.parse().ok()?;
            return match name {
                "cut" => Some(Self::Cut(offset)),
                "garbage" => Some(Self::Garbage(offset)),
                _ => None,
            };
        }
        let (name, wait) = match text.split_once(':') {
            Some((name, wait)) => (name, Some(wait.parse().ok()?)),
            None => (text, None),
        };
        match name {
            "429" | "500" | "503" | "529" => Some(Self::Status(name.parse().ok()?, wait)),
            "stall" if wait.is_none() => Some(Self::Stall),
            "drip" if wait.is_none() => Some(Self::Drip),
            "duplicate" if wait.is_none() => Some(Self::Duplicate),
            _ => None,
        }
    }
}

/// One step in sending a response body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BodyStep {
    Bytes(Vec<u8>),
    /// Close the connection abnormally.
    Break,
    /// Keep the connection open without sending anything.
    Silence,
}

/// Converts the chunks of a response body to steps and applies the fault, if any.
pub(crate) fn apply_fault(chunks: Vec<Vec<u8>>, fault: Option<&FaultKind>) -> Vec<BodyStep> {
    match fault {
        None | Some(FaultKind::Status(..)) => chunks.into_iter().map(BodyStep::Bytes).collect(),
        Some(FaultKind::Cut(at)) => truncate(chunks, *at, BodyStep::Break),
        Some(FaultKind::Stall) => {
            let half = chunks.iter().map(Vec::len).sum::<usize>() / 2;
            truncate(chunks, half, BodyStep::Silence)
        }
        Some(FaultKind::Drip) => {
            chunks.concat().into_iter().map(|byte| BodyStep::Bytes(vec![byte])).collect()
        }
        Some(FaultKind::Garbage(at)) => {
            let mut bytes = chunks.concat();
            let rest = bytes.split_off(bytes.len().min(*at));
            vec![
                BodyStep::Bytes(bytes),
                BodyStep::Bytes(b"\xff\xfe{\"]garbage\x00\n\n".to_vec()),
                BodyStep::Bytes(rest),
            ]
        }
        Some(FaultKind::Duplicate) => chunks
            .into_iter()
            .flat_map(|chunk| [BodyStep::Bytes(chunk.clone()), BodyStep::Bytes(chunk)])
            .collect(),
    }
}

/// Keeps the first `remaining` bytes of the chunks, then appends the step `then`.
fn truncate(chunks: Vec<Vec<u8>>, mut remaining: usize, then: BodyStep) -> Vec<BodyStep> {
    let mut pieces = Vec::new();
    for mut chunk in chunks {
        if chunk.len() > remaining {
            chunk.truncate(remaining);
            pieces.push(BodyStep::Bytes(chunk));
            break;
        }
        remaining -= chunk.len();
        pieces.push(BodyStep::Bytes(chunk));
    }
    pieces.push(then);
    pieces
}
