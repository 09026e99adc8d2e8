//! The keys of a store: the secret, from which all other keys derive, and the master key, which
//! wraps the secret and all salts.
//!
//! Without a master key, salts are stored unwrapped, in epoch 0. Each master key that was ever used
//! has an epoch, identified by a check value that only this key decrypts. Rotation re-wraps all
//! salts, one page at a time, while other processes read and write.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use throughline_core::{Digest, StoreError, Tenant, VaultKey};
use throughline_json::Name;
use zeroize::Zeroizing;

use crate::backend::Backend;
use crate::cipher::{self, SALT, SaltBytes, Secret};
use crate::master_key::MasterKey;
use crate::options::Options;
use crate::protection::{ApiKeyMac, Protection, SECRET, row_key};
use crate::rejection::{Result, corrupt};
use crate::row::Salt;
use crate::row_mac::RowKey;
use crate::sealed_batch::{Hash16, KeyKind, SealedKey};
use crate::sync::lock;

/// All keys of an open store.
pub(crate) struct Keys {
    secret: Secret,
    /// The available master keys by epoch. Epoch 0 has no key.
    epochs: Mutex<BTreeMap<u32, Secret>>,
    current: AtomicU32,
    /// Read-locked by each batch from sealing until its commit. A rotation takes the write lock to
    /// wait for these batches.
    sealing: tokio::sync::RwLock<()>,
}

/// Suffix that marks the stored secret of a store whose index rows have MACs. Without this mark, an
/// attacker could downgrade a store with a master key to schema version 1, change rows, and have
/// all MACs recomputed.
const MARK: u8 = 2;
/// Name prefix of an epoch's check value, which only the master key of that epoch decrypts.
const EPOCH: &str = "epoch ";
const CHECK: &[u8] = b"throughline";

impl Keys {
    /// Loads the keys of a store, or creates them for a new store. Retired keys decrypt values that
    /// were wrapped with earlier master keys.
    pub(crate) async fn open(backend: &dyn Backend, options: &Options) -> Result<Self> {
        let (master, retired) = (options.master_key.as_ref(), &options.retired_keys);
        let known: Vec<&Secret> =
            master.into_iter().chain(retired).map(|MasterKey(key)| key).collect();
        let refused = match master {
            Some(_) => StoreError::WrongKey,
            None => StoreError::KeyMissing,
        };
        // Other processes may start at the same time. They store the secret after its epoch, so
        // this process reads the secret before the epochs.
        let stored = backend.values(SECRET).await?.into_iter().find(|(name, _)| name == SECRET);
        let mut epochs = BTreeMap::new();
        let mut latest = 0;
        for (name, check) in backend.values(EPOCH).await? {
            let Some(number) = name.strip_prefix(EPOCH).and_then(|number| number.parse().ok())
            else {
                return Err(corrupt!("the name of a stored master key epoch has no number"));
            };
            latest = latest.max(number);
            // Keys of past epochs may be missing from the options.
            let opens = |key: &&&Secret| cipher::unwrap(key, &check).is_some();
            if let Some(key) = known.iter().find(opens) {
                epochs.insert(number, Secret::clone(key));
            }
        }
        if latest > 0 && epochs.is_empty() {
            return Err(refused);
        }
        // Write nothing until the keys are known to open the store.
        let opened =
            match stored.as_ref().map(|(_, stored)| opened_secret(&epochs, stored)).transpose() {
                Err(StoreError::WrongKey) => return Err(refused),
                opened => opened?,
            };
        if latest == 0 && stored.is_some() && master.is_some() {
            return Err(StoreError::invalid(
                "this store has no master key; open the store without a key, or add this key with \
                 `throughline rotate`",
            ));
        }
        if options.read_only {
            let problem = "the database contains no store; check the database name";
            let opened = opened.ok_or_else(|| StoreError::invalid(problem))?;
            let latest = epochs.keys().copied().max().unwrap_or(0);
            return Ok(Self::with(opened.secret, epochs, latest));
        }
        if let Some(opened) = &opened {
            backend.protect(opened.protection(&epochs)?).await?;
        }
        let current = match master {
            // Without a master key in the options, use the latest epoch whose key is available.
            None => epochs.keys().copied().max().unwrap_or(0),
            Some(MasterKey(key)) => {
                let known = epoch_with(&epochs, key);
                let number = known.unwrap_or(latest + 1);
                if known.is_none() {
                    register_epoch(backend, number, key).await?;
                    epochs.insert(number, key.clone());
                }
                number
            }
        };
        let fresh = Secret::new(cipher::random()?);
        let stored = backend.keep(SECRET, wrapped(&epochs, current, &*fresh)?).await?;
        let active = opened_secret(&epochs, &stored)?;
        if opened.is_none() {
            backend.protect(active.protection(&epochs)?).await?;
        }
        let keys = Self::with(active.secret, epochs, current);
        if active.epoch != current {
            backend.replace(SECRET, keys.wrapped()?).await?;
        }
        Ok(keys)
    }

    fn with(secret: Secret, epochs: BTreeMap<u32, Secret>, current: u32) -> Self {
        let current = AtomicU32::new(current);
        let sealing = tokio::sync::RwLock::default();
        Self { secret, epochs: Mutex::new(epochs), current, sealing }
    }

    /// Returns the same keys without a master key, for a copy of the store that may lack the
    /// current epoch.
    pub(crate) fn without_master(&self) -> Self {
        Self::with(self.secret.clone(), BTreeMap::new(), 0)
    }

    /// Returns the epoch whose master key wraps new salts.
    pub(crate) fn epoch(&self) -> u32 {
        self.current.load(Ordering::Acquire)
    }

    /// Returns a guard to hold from sealing a batch until its commit. A rotation waits until all
    /// guards are dropped.
    pub(crate) async fn sealing(&self) -> tokio::sync::RwLockReadGuard<'_, ()> {
        self.sealing.read().await
    }

    /// Starts a new epoch while the store is open. On return, all batches that this process sealed
    /// in earlier epochs are committed.
    pub(crate) async fn begin_epoch(
        &self,
        backend: &dyn Backend,
        MasterKey(key): &MasterKey,
    ) -> Result<u32> {
        let found = epoch_with(&lock(&self.epochs), key);
        let number = match found {
            Some(number) => number,
            None => {
                let values = backend.values(EPOCH).await?;
                let numbered = values.iter().filter_map(|(name, check)| {
                    let number = name.strip_prefix(EPOCH)?.parse::<u32>().ok()?;
                    Some((number, cipher::unwrap(key, check).is_some()))
                });
                // Another process may have started the epoch since this store was opened.
                let started =
                    numbered.clone().find(|(_, is_match)| *is_match).map(|(number, _)| number);
                let last = numbered.map(|(number, _)| number).max().unwrap_or(0);
                let number = started.unwrap_or(last + 1);
                register_epoch(backend, number, key).await?;
                lock(&self.epochs).insert(number, key.clone());
                number
            }
        };
        self.current.store(number, Ordering::Release);
        backend.replace(SECRET, self.wrapped()?).await?;
        drop(self.sealing.write().await);
        Ok(number)
    }

    /// Wraps a salt with the current epoch's master key.
    pub(crate) fn wrap(&self, salt: &SaltBytes) -> Result<Salt> {
        let epoch = self.epoch();
        Ok(Salt { epoch, bytes: wrap(self.key(epoch).as_ref(), salt)? })
    }

    pub(crate) fn unwrap(&self, salt: &Salt) -> Result<SaltBytes> {
        let damaged = || corrupt!("a salt cannot be unwrapped with the master key");
        let plain = unwrap(salt.epoch, self.key(salt.epoch).as_ref(), &salt.bytes)?;
        <[u8; SALT]>::try_from(plain.ok_or_else(damaged)?.as_slice()).map_err(|_| damaged())
    }

    /// Returns the seed of the manifest signing key.
    pub(crate) fn signing_seed(&self) -> Secret {
        Secret::new(blake3::derive_key("throughline 2026 store manifests", &*self.secret))
    }

    /// Derives a key for a purpose outside this crate.
    pub(crate) fn derived(&self, purpose: &str) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        *hasher.update(b"derived ").update(purpose.as_bytes()).finalize().as_bytes()
    }

    /// Returns the key for index row MACs.
    pub(crate) fn row_key(&self) -> RowKey {
        row_key(&self.secret)
    }

    pub(crate) fn api_key_mac(&self) -> ApiKeyMac {
        ApiKeyMac::new(&self.secret)
    }

    /// Returns the keys that protect a backup of this store. A backup keeps its own secret, so the
    /// marked secret is omitted.
    pub(crate) fn backup_protection(&self) -> Protection {
        let (key, api_keys) = (self.row_key(), self.api_key_mac());
        Protection { key, api_keys, is_marked: false, marked: None }
    }

    /// Returns the `about` hash of the record that revokes the API key with this hash.
    pub(crate) fn revocation(&self, hash: &Digest) -> i64 {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        i64::from_be_bytes(start(&hasher.update(b"api key revocation\n").update(hash).finalize()))
    }

    /// Returns the keyed hash that the store keeps instead of the API key itself.
    pub(crate) fn api_key_hash(&self, key: &str) -> Digest {
        let hash =
            Secret::new(blake3::derive_key("throughline 2026 store api keys", &*self.secret));
        *blake3::keyed_hash(&hash, key.as_bytes()).as_bytes()
    }

    /// Returns the keyed hash of a record's subject, truncated to 64 bits.
    pub(crate) fn about(&self, tenant: &Tenant, about: &str) -> i64 {
        i64::from_be_bytes(start(&self.keyed(tenant, "about", about.as_bytes())))
    }

    /// Returns the keyed hash of an idempotency name.
    pub(crate) fn once(&self, tenant: &Tenant, name: &Name) -> Hash16 {
        start(&self.keyed(tenant, "once", name.as_bytes()))
    }

    /// Returns the keyed hash of a Vault key.
    pub(crate) fn vault(&self, tenant: &Tenant, key: &VaultKey) -> SealedKey {
        let (kind, bytes) = match key {
            VaultKey::Claim(claim) => (KeyKind::Claim, claim.as_bytes()),
            VaultKey::Id(id) => (KeyKind::Id, id.as_bytes()),
            VaultKey::Chain(digest) => (KeyKind::Chain, digest.as_slice()),
        };
        SealedKey { kind, hash: start(&self.keyed(tenant, "vault", bytes)) }
    }

    /// Returns the id and the encryption key of a blob. Equal content of one tenant has the same
    /// id, so it is stored only once.
    pub(crate) fn blob(&self, tenant: &Tenant, content: &[u8]) -> (Digest, Secret) {
        let id = *self.keyed(tenant, "blob", content).as_bytes();
        (id, Secret::new(*self.keyed(tenant, "blob key", content).as_bytes()))
    }

    fn keyed(&self, tenant: &Tenant, purpose: &str, bytes: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        for part in [purpose.as_bytes(), tenant.0.as_bytes()] {
            hasher.update(part).update(b"\n");
        }
        hasher.update(bytes).finalize()
    }

    fn key(&self, epoch: u32) -> Option<Secret> {
        lock(&self.epochs).get(&epoch).cloned()
    }

    fn wrapped(&self) -> Result<Bytes> {
        wrapped(&lock(&self.epochs), self.epoch(), &marked(&self.secret))
    }
}

/// Returns the epoch that uses this master key.
fn epoch_with(epochs: &BTreeMap<u32, Secret>, key: &Secret) -> Option<u32> {
    epochs.iter().find(|(_, known)| **known == *key).map(|(number, _)| *number)
}

/// Stores the check value of an epoch, unless another process with the same key already stored it.
/// Fails if another process used the epoch number for a different key.
async fn register_epoch(backend: &dyn Backend, number: u32, key: &Secret) -> Result<()> {
    let check = cipher::wrap(key, CHECK)?;
    let check = backend.keep(&format!("{EPOCH}{number}"), check).await?;
    cipher::unwrap(key, &check).map(drop).ok_or(StoreError::WrongKey)
}

struct OpenedSecret {
    secret: Secret,
    /// The epoch whose master key wraps the secret.
    epoch: u32,
    /// Whether the secret carries [`MARK`].
    is_marked: bool,
}

impl OpenedSecret {
    fn protection(&self, epochs: &BTreeMap<u32, Secret>) -> Result<Protection> {
        let Self { secret, epoch, is_marked } = self;
        let (key, api_keys) = (row_key(secret), ApiKeyMac::new(secret));
        let marked = Some(wrapped(epochs, *epoch, &marked(secret))?);
        Ok(Protection { key, api_keys, is_marked: *is_marked, marked })
    }
}

fn marked(secret: &Secret) -> Zeroizing<Vec<u8>> {
    Zeroizing::new([secret.as_slice(), &[MARK]].concat())
}

fn wrapped(epochs: &BTreeMap<u32, Secret>, epoch: u32, secret: &[u8]) -> Result<Bytes> {
    let bytes = wrap(epochs.get(&epoch), secret)?;
    Ok(Bytes::from([&epoch.to_be_bytes(), bytes.as_ref()].concat()))
}

/// Wraps bytes with an epoch's master key. Without a key (epoch 0), returns the bytes unchanged.
fn wrap(key: Option<&Secret>, bytes: &[u8]) -> Result<Bytes> {
    key.map_or_else(|| Ok(Bytes::copy_from_slice(bytes)), |key| cipher::wrap(key, bytes))
}

/// Unwraps bytes with an epoch's master key. Fails if the key is not available, and returns `None`
/// if the key does not match.
fn unwrap(epoch: u32, key: Option<&Secret>, bytes: &[u8]) -> Result<Option<Zeroizing<Vec<u8>>>> {
    match key {
        _ if epoch == 0 => Ok(Some(Zeroizing::new(bytes.to_vec()))),
        None => Err(StoreError::WrongKey),
        Some(key) => Ok(cipher::unwrap(key, bytes)),
    }
}

fn opened_secret(epochs: &BTreeMap<u32, Secret>, stored: &[u8]) -> Result<OpenedSecret> {
    let damaged = || corrupt!("the store's secret is damaged");
    let (epoch, bytes) = stored.split_first_chunk().ok_or_else(damaged)?;
    let epoch = u32::from_be_bytes(*epoch);
    let plain = unwrap(epoch, epochs.get(&epoch), bytes)?.ok_or_else(damaged)?;
    let (secret, mark) = plain.split_first_chunk::<32>().ok_or_else(damaged)?;
    let is_marked = match mark {
        [] => false,
        [MARK] => true,
        _ => return Err(damaged()),
    };
    Ok(OpenedSecret { secret: Secret::new(*secret), epoch, is_marked })
}

/// Truncates a hash to its first `N` bytes.
fn start<const N: usize>(hash: &blake3::Hash) -> [u8; N] {
    hash.as_bytes().first_chunk().copied().unwrap_or([0; N])
}
