//! What can go wrong between a provider and its client, on request.

use std::str::FromStr;

#[cfg(test)]
#[path = "faults_tests.rs"]
mod faults_tests;

/// A way to spoil an answer, and which answer.
///
/// Written as `cut@200`, `429`, `429:30`, `500`, `529`, `stall`, `drip`, `garbage@100` or `duplicate`; with `#3` behind it, only
/// the third request is spoiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// The only request that it happens to, counted from 1; every request where nothing is said.
    pub only: Option<u64>,
}

/// What goes wrong with an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The connection is closed after so many bytes of the body, without its end.
    Cut(usize),
    /// The request is refused with status 429, 500, 503 or 529, and is told how many seconds to wait.
    Status(u16, Option<u64>),
    /// Half of the answer comes, and then nothing, until the client gives up or the simulator stops.
    Stall,
    /// The answer comes byte by byte.
    Drip,
    /// From that byte of the body on come a few bytes that mean nothing, and then the rest.
    Garbage(usize),
    /// Every frame of a stream comes twice.
    Duplicate,
}

/// A fault that nobody can make sense of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a fault: try cut@200, 429, 429:30, 500, 503, 529, stall, drip, garbage@100 or \
     duplicate, with #3 behind it for the third request only"
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
        if let Some((word, place)) = text.split_once('@') {
            let place = place.parse().ok()?;
            return match word {
                "cut" => Some(Self::Cut(place)),
                "garbage" => Some(Self::Garbage(place)),
                _ => None,
            };
        }
        let (word, wait) = match text.split_once(':') {
            Some((word, wait)) => (word, Some(wait.parse().ok()?)),
            None => (text, None),
        };
        match word {
            "429" | "500" | "503" | "529" => Some(Self::Status(word.parse().ok()?, wait)),
            "stall" if wait.is_none() => Some(Self::Stall),
            "drip" if wait.is_none() => Some(Self::Drip),
            "duplicate" if wait.is_none() => Some(Self::Duplicate),
            _ => None,
        }
    }
}

/// What is sent of an answer, piece by piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Some bytes.
    Bytes(Vec<u8>),
    /// The connection breaks.
    Break,
    /// Nothing more comes.
    Silence,
}

/// Spoils an answer. What has no fault is sent as it is.
pub(crate) fn spoiled(chunks: Vec<Vec<u8>>, fault: Option<&FaultKind>) -> Vec<Piece> {
    match fault {
        None | Some(FaultKind::Status(..)) => chunks.into_iter().map(Piece::Bytes).collect(),
        Some(FaultKind::Cut(at)) => first(chunks, *at, Piece::Break),
        Some(FaultKind::Stall) => {
            let half = chunks.iter().map(Vec::len).sum::<usize>() / 2;
            first(chunks, half, Piece::Silence)
        }
        Some(FaultKind::Drip) => {
            chunks.concat().into_iter().map(|byte| Piece::Bytes(vec![byte])).collect()
        }
        Some(FaultKind::Garbage(at)) => {
            let mut bytes = chunks.concat();
            let rest = bytes.split_off(bytes.len().min(*at));
            vec![
                Piece::Bytes(bytes),
                Piece::Bytes(b"\xff\xfe{\"]garbage\x00\n\n".to_vec()),
                Piece::Bytes(rest),
            ]
        }
        Some(FaultKind::Duplicate) => chunks
            .into_iter()
            .flat_map(|chunk| [Piece::Bytes(chunk.clone()), Piece::Bytes(chunk)])
            .collect(),
    }
}

/// The first bytes, and what comes instead of the others.
fn first(chunks: Vec<Vec<u8>>, mut left: usize, then: Piece) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for mut chunk in chunks {
        if chunk.len() > left {
            chunk.truncate(left);
            pieces.push(Piece::Bytes(chunk));
            break;
        }
        left -= chunk.len();
        pieces.push(Piece::Bytes(chunk));
    }
    pieces.push(then);
    pieces
}
