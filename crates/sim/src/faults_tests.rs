//! Tests for parsing faults and applying them to a response.

use super::*;

fn kind(text: &str) -> Option<FaultKind> {
    text.parse::<Fault>().ok().map(|fault| fault.kind)
}

#[test]
fn faults_parse_from_text() {
    assert_eq!(kind("cut@200"), Some(FaultKind::Cut(200)));
    assert_eq!(kind("garbage@0"), Some(FaultKind::Garbage(0)));
    assert_eq!(kind("429"), Some(FaultKind::Status(429, None)));
    assert_eq!(kind("429:30"), Some(FaultKind::Status(429, Some(30))));
    assert_eq!(kind(" 529 "), Some(FaultKind::Status(529, None)));
    assert_eq!(kind("stall"), Some(FaultKind::Stall));
    assert_eq!(kind("drip"), Some(FaultKind::Drip));
    assert_eq!(kind("duplicate"), Some(FaultKind::Duplicate));
    assert_eq!("stall#3".parse(), Ok(Fault { kind: FaultKind::Stall, only: Some(3) }));
    for wrong in ["", "cut", "cut@", "cut@x", "418", "stall:3", "drip#0", "drip#x", "429:x"] {
        assert_eq!(wrong.parse::<Fault>(), Err(InvalidFault(wrong.to_owned())), "{wrong}");
    }
}

#[test]
fn cut_fault_ends_the_body_at_the_exact_byte() {
    let chunks = || vec![b"abc".to_vec(), b"def".to_vec()];
    let bytes = |text: &[u8]| BodyStep::Bytes(text.to_vec());
    assert_eq!(apply_fault(chunks(), None), [bytes(b"abc"), bytes(b"def")]);
    let cut = apply_fault(chunks(), Some(&FaultKind::Cut(4)));
    assert_eq!(cut, [bytes(b"abc"), bytes(b"d"), BodyStep::Break]);
    let late = apply_fault(chunks(), Some(&FaultKind::Cut(60)));
    assert_eq!(late, [bytes(b"abc"), bytes(b"def"), BodyStep::Break]);
    let stalled = apply_fault(chunks(), Some(&FaultKind::Stall));
    assert_eq!(stalled, [bytes(b"abc"), bytes(b""), BodyStep::Silence]);
    let twice = apply_fault(chunks(), Some(&FaultKind::Duplicate));
    assert_eq!(twice, [bytes(b"abc"), bytes(b"abc"), bytes(b"def"), bytes(b"def")]);
}
