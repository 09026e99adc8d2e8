//! Signed manifests: what the chains' heads were at some moment. Whoever holds one can prove that nothing before it was
//! changed, and that nothing was cut off.

use ed25519_dalek::{Signature, Signer as _, SigningKey, Verifier as _, VerifyingKey};
use sha2::{Digest as _, Sha256};
use throughline_core::{Digest, Name, Tenant};

use crate::chain::Head;
use crate::row_mac::RowState;

/// A signed statement about the heads of chains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// What is signed; lines of text.
    pub body: String,
    /// The ed25519 signature over it.
    pub signature: [u8; 64],
}

/// What a manifest says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The store's public key, in hexadecimal digits: it is also the store's name.
    pub store: String,
    /// Who wrote it.
    pub writer: Name,
    /// Its number among that writer's.
    pub number: u64,
    /// When, in milliseconds since 1970.
    pub at: i64,
    /// The digest of that writer's manifest before it.
    pub previous: Digest,
    /// A digest of what it goes along with, where it ends an export.
    pub covers: Option<Digest>,
    /// The heads that moved since that writer's last manifest, or all.
    pub heads: Vec<Head>,
    /// Where the sums of index rows stand; none in a manifest that ends an export.
    pub rows: Vec<RowState>,
}

const FIRST_LINE: &str = "throughline manifest 1";
/// The first line where sums of rows are named.
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
    /// What it says, if it has the shape of a manifest. Whether it is true is [`Manifest::is_signed_by`]'s to say.
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
        let previous = digest(lines.next()?.strip_prefix("previous\t")?)?;
        let (covers, heads, rows) = (None, Vec::new(), Vec::new());
        let mut statement = Statement { store, writer, number, at, previous, covers, heads, rows };
        for line in lines {
            if let Some(covers) = line.strip_prefix("covers\t") {
                statement.covers = Some(digest(covers)?);
                continue;
            }
            if let Some(state) = row_state(line).filter(|_| may_have_rows) {
                statement.rows.push(state);
                continue;
            }
            let mut words = line.strip_prefix("head\t")?.split('\t');
            statement.heads.push(Head {
                tenant: Tenant::from(words.next()?),
                writer: Name::from(words.next()?),
                position: words.next()?.parse().ok()?,
                link: digest(words.next()?)?,
            });
            if words.next().is_some() {
                return None;
            }
        }
        Some(statement)
    }

    /// Whether the store with that public key signed it.
    pub fn is_signed_by(&self, store: &str) -> bool {
        let Some(key) = digest(store).and_then(|key| VerifyingKey::from_bytes(&key).ok()) else {
            return false;
        };
        key.verify(self.body.as_bytes(), &Signature::from_bytes(&self.signature)).is_ok()
    }

    /// Its digest, which the next manifest names.
    pub fn digest(&self) -> Digest {
        Sha256::digest(self.body.as_bytes()).into()
    }
}

fn row_state(line: &str) -> Option<RowState> {
    let mut words = line.split('\t');
    let segment = match words.next()? {
        "rows" => Some((Tenant::from(words.next()?), Name::from(words.next()?))),
        "store-rows" => None,
        _ => return None,
    };
    let (changes, digest) = (words.next()?.parse().ok()?, digest(words.next()?)?);
    words.next().is_none().then_some(RowState { segment, changes, digest })
}

/// Signs manifests for one store.
pub(crate) struct Signer {
    key: SigningKey,
}

impl Signer {
    pub(crate) fn new(seed: &[u8; 32]) -> Self {
        Self { key: SigningKey::from_bytes(seed) }
    }

    /// The public key, in hexadecimal digits.
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

/// The manifests of one writer: each names the one before it.
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

    /// The next manifest. It counts once [`Series::wrote`] is told that it was kept.
    pub(crate) fn next(&self, at: i64, heads: Vec<Head>, rows: Vec<RowState>) -> Manifest {
        self.signer.sign(Statement {
            store: String::new(),
            writer: self.writer.clone(),
            number: self.number + 1,
            at,
            previous: self.previous,
            covers: None,
            heads,
            rows,
        })
    }

    pub(crate) fn wrote(&mut self, manifest: &Manifest) {
        self.number += 1;
        self.previous = manifest.digest();
    }
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digit = |value: u8| DIGITS.get(usize::from(value)).copied().unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The digest that hexadecimal digits spell.
pub(crate) fn digest(hex: &str) -> Option<Digest> {
    let mut digest = [0; 32];
    // One digest is written in one way only.
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if hex.len() != 64 || !hex.bytes().all(is_digit) {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(digest)
}
