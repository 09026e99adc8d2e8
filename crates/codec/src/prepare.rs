//! Prepares a request for its provider: encodes a Call, audits the request, repairs it, and updates
//! the Fates.

use throughline_core::{Call, EncodedRequest, Target};
use throughline_json::Tree;

use crate::audit::{Finding, IssuedSeals, Transcript, Verdict, audit};
use crate::repair::{AppliedFix, Repair, RepairLevel, refresh_fates, repair};
use crate::{Codec, CodecError};

/// The context in which a request is prepared.
#[derive(Clone, Copy)]
pub struct Preparation<'a> {
    /// The codec of the target's wire.
    pub codec: &'a dyn Codec,
    /// The endpoint and model that receive the request.
    pub target: &'a Target,
    /// The level of repair; `None` if the request is only audited.
    pub level: Option<RepairLevel>,
    /// The parsed body of the request, if available. It is ignored if the encoded request has a
    /// different body.
    pub parsed: Option<&'a Tree>,
    /// Seals that the target is known to have issued.
    pub issued: Option<&'a dyn IssuedSeals>,
}

/// A request that is ready to be sent, with the outcome of its audit.
#[derive(Debug)]
pub struct PreparedCall {
    /// The request, with its Fates after the repair.
    pub encoded: EncodedRequest,
    /// The verdict, the findings and the applied repairs.
    pub outcome: AuditOutcome,
}

/// The outcome of auditing and repairing a request.
#[derive(Debug)]
pub struct AuditOutcome {
    /// The verdict on the request. It is at least [`Verdict::Degrade`] if a repair removed content.
    pub verdict: Verdict,
    /// The rules that the request violates, after any repair.
    pub findings: Vec<Finding>,
    /// The repairs, in the order in which they were applied.
    pub fixes: Vec<AppliedFix>,
}

impl AuditOutcome {
    /// Returns the outcome for a request that is not audited.
    pub fn skipped() -> Self {
        Self { verdict: Verdict::Accept, findings: Vec::new(), fixes: Vec::new() }
    }
}

impl<'a> Preparation<'a> {
    /// Creates a preparation that repairs only violations that the provider would reject.
    pub fn new(codec: &'a dyn Codec, target: &'a Target) -> Self {
        Self { codec, target, level: Some(RepairLevel::Refused), parsed: None, issued: None }
    }

    /// Encodes a Call, then audits and repairs the request.
    pub fn encode(&self, call: &Call) -> Result<PreparedCall, CodecError> {
        self.check(self.codec.encode(call)?)
    }

    /// Audits and repairs an encoded request.
    pub fn check(&self, mut encoded: EncodedRequest) -> Result<PreparedCall, CodecError> {
        let transcript = Transcript::new(self.codec, &encoded.request);
        let Self { parsed, issued, .. } = *self;
        let transcript = Transcript { knows_headers: true, parsed, issued, ..transcript };
        let Some(level) = self.level else {
            let audit = audit(&transcript, self.target)?;
            let verdict = audit.verdict();
            let outcome = AuditOutcome { verdict, findings: audit.findings, fixes: Vec::new() };
            return Ok(PreparedCall { encoded, outcome });
        };
        let Repair { request, fixes, audit } = repair(&transcript, self.target, level)?;
        let mut verdict = audit.verdict();
        if !fixes.is_empty() && refresh_fates(self.codec, self.target, &mut encoded, request)? {
            verdict = verdict.max(Verdict::Degrade);
        }
        let outcome = AuditOutcome { verdict, findings: audit.findings, fixes };
        Ok(PreparedCall { encoded, outcome })
    }
}
