//! Signed manifests of chain heads. A manifest that was exported earlier reveals whether older data
//! was changed or truncated since the export.

use ed25519_dalek::{Signature, Signer as _, SigningKey, Verifier as _, VerifyingKey};
use sha2::{Digest as _, Sha256};
use throughline_core::{Digest, Tenant};
use throughline_json::Name;

use crate::chain::Head;
use crate::hex::{hex, parse_digest};
use crate::row_mac::RowState;

/// A signed statement about chain heads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The signed text, in lines that [`Manifest::statement`] parses.
    pub body: String,
    /// The ed25519 signature of `body`.
    pub signature: [u8; 64],
}

/// The parsed text of a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statement {
    /// The store's public key in hexadecimal digits, which also identifies the store.
    pub store: String,
    /// The writer that signed the manifest.
    pub writer: Name,
    /// Consecutive number among the writer's manifests.
    pub number: u64,
    /// Time of signing in milliseconds since 1970.
    pub at: i64,
    /// SHA-256 digest of the writer's previous manifest.
    pub previous: Digest,
    /// Digest of all preceding lines, if this manifest is the last line of an export.
    pub covers: Option<Digest>,
    /// The heads that changed since the writer's last manifest, or all heads.
    pub heads: Vec<Head>,
    /// The sums of index rows. Empty if the manifest is the last line of an export.
    pub rows: Vec<RowState>,
}

const FIRST_LINE: &str = "throughline manifest 1";
/// The first line of a manifest that contains row sums.
const FIRST_LINE_WITH_ROWS: &str = "throughline manifest 2";

impl Statement {
    fn body(&self) -> String {
        let first = if self.rows.is_empty() { FIRST_LINE } else { FIRST_LINE_WITH_ROWS };
        let mut lines = vec![
            first.to_owned(),
            format!("store\t{}", self.store),
            format!("writer\t{}", self.writer),
            format!("number\t{}", self.number),
            format!("at\t{}", self.at),
            format!("previous\t{}", hex(&self.previous)),
        ];
        lines.extend(self.covers.as_ref().map(|covers| format!("covers\t{}", hex(covers))));
        for Head { tenant, writer, position, link } in &self.heads {
            lines.push(format!("head\t{tenant}\t{writer}\t{position}\t{}", hex(link)));
        }
        for RowState { segment, changes, digest } in &self.rows {
            let digest = hex(digest);
            lines.push(match segment {
                Some((tenant, writer)) => format!("rows\t{tenant}\t{writer}\t{changes}\t{digest}"),
                None => format!("store-rows\t{changes}\t{digest}"),
            });
        }
        lines.join("\n") + "\n"
    }
}

impl Manifest {
    /// Parses the body, without checking the signature; see [`Manifest::is_signed_by`]. Returns
    /// `None` if the body is malformed.
    pub fn statement(&self) -> Option<Statement> {
        let mut lines = self.body.strip_suffix('\n')?.split('\n');
        let first = lines.next()?;
        let may_have_rows = first == FIRST_LINE_WITH_ROWS;
        if first != FIRST_LINE && !may_have_rows {
            return None;
        }
        let store = lines.next()?.strip_prefix("store\t")?.to_owned();
        let writer = Name::from(lines.next()?.strip_prefix("writer\t")?);
        let number = lines.next()?.strip_prefix("number\t")?.parse().ok()?;
        let at = lines.next()?.strip_prefix("at\t")?.parse().ok()?;
        let previous = parse_digest(lines.next()?.strip_prefix("previous\t")?)?;
        let (covers, heads, rows) = (None, Vec::new(), Vec::new());
        let mut statement = Statement { store, writer, number, at, previous, covers, heads, rows };
        for line in lines {
            if let Some(covers) = line.strip_prefix("covers\t") {
                statement.covers = Some(parse_digest(covers)?);
                continue;
            }
            if let Some(state) = row_state(line).filter(|_| may_have_rows) {
                statement.rows.push(state);
                continue;
            }
            let mut fields = line.strip_prefix("head\t")?.split('\t');
            statement.heads.push(Head {
                tenant: Tenant::from(fields.next()?),
                writer: Name::from(fields.next()?),
                position: fields.next()?.parse().ok()?,
                link: parse_digest(fields.next()?)?,
            });
            if fields.next().is_some() {
                return None;
            }
        }
        Some(statement)
    }

    /// Returns whether the store with this public key, in hexadecimal digits, signed the manifest.
    pub fn is_signed_by(&self, store: &str) -> bool {
        let Some(key) = parse_digest(store).and_then(|key| VerifyingKey::from_bytes(&key).ok())
        else {
            return false;
        };
        key.verify(self.body.as_bytes(), &Signature::from_bytes(&self.signature)).is_ok()
    }

    /// Returns the SHA-256 digest of the body, which the writer's next manifest contains.
    pub fn digest(&self) -> Digest {
        Sha256::digest(self.body.as_bytes()).into()
    }
}

fn row_state(line: &str) -> Option<RowState> {
    let mut fields = line.split('\t');
    let segment = match fields.next()? {
        "rows" => Some((Tenant::from(fields.next()?), Name::from(fields.next()?))),
        "store-rows" => None,
        _ => return None,
    };
    let (changes, digest) = (fields.next()?.parse().ok()?, parse_digest(fields.next()?)?);
    fields.next().is_none().then_some(RowState { segment, changes, digest })
}

/// Signs manifests with the store's key.
pub(crate) struct Signer {
    key: SigningKey,
}

impl Signer {
    pub(crate) fn new(seed: &[u8; 32]) -> Self {
        Self { key: SigningKey::from_bytes(seed) }
    }

    /// Returns the store's public key in hexadecimal digits.
    pub(crate) fn store(&self) -> String {
        hex(self.key.verifying_key().as_bytes())
    }

    pub(crate) fn sign(&self, mut statement: Statement) -> Manifest {
        statement.store = self.store();
        let body = statement.body();
        let signature = self.key.sign(body.as_bytes()).to_bytes();
        Manifest { body, signature }
    }
}

/// Signs the consecutive manifests of one writer. Each contains the digest of the previous one.
pub(crate) struct Series {
    signer: std::sync::Arc<Signer>,
    writer: Name,
    number: u64,
    previous: Digest,
}

impl Series {
    pub(crate) fn new(signer: std::sync::Arc<Signer>, writer: Name) -> Self {
        Self { signer, writer, number: 0, previous: [0; 32] }
    }

    /// Builds the next manifest. The series advances only when [`Series::wrote`] confirms that the
    /// manifest was stored.
    pub(crate) fn next(&self, at: i64, heads: Vec<Head>, rows: Vec<RowState>) -> Manifest {
        let (writer, number, previous) = (self.writer.clone(), self.number + 1, self.previous);
        let new = Statement::default();
        self.signer.sign(Statement { writer, number, at, previous, heads, rows, ..new })
    }

    pub(crate) fn wrote(&mut self, manifest: &Manifest) {
        self.number += 1;
        self.previous = manifest.digest();
    }
}
