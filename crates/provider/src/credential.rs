//! Credentials that are read from a source and replaced while the process runs.
//!
//! A [`DynamicCredential`] caches the secret of one source: a file, a command, or the identity
//! service of a cloud. It fetches the secret again before it expires, in the background and at most
//! once at a time. If a fetch fails, the old secret stays in use until it expires. If a provider
//! rejects a secret, [`DynamicCredential::replace`] fetches the secret at once.
//!
//! AWS credentials come from the AWS SDK, because its default chain has many sources and several
//! file formats. The clients for Google and Microsoft Entra are written here. The vendors' crates
//! bring their own HTTP clients and 20 to 30 further packages. They also cache tokens internally,
//! so a rejected token cannot be replaced, and they read the environment, which only the binary
//! does in this project.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::Shared;
use jiff::{SignedDuration, Timestamp};
use throughline_core::Credential;
use throughline_json::Name;

use crate::sigv4::AwsKeys;

pub(crate) mod assertion;
#[cfg(feature = "aws")]
mod aws;
mod command;
mod entra;
mod file;
mod google;
mod google_external;
pub(crate) mod token_client;

pub use crate::credential::command::CommandSettings;
pub use crate::credential::entra::{EntraLogin, EntraSettings, ServicePrincipal};
pub use crate::credential::google::GoogleSettings;

/// Time before the expiry at which a secret is fetched again. Identity services issue a new token
/// at the latest five minutes before the old token expires.
const REFRESH_AHEAD: SignedDuration = SignedDuration::from_mins(5);

/// Delay after a failed fetch while the old secret is still valid.
const RETRY_PAUSE: SignedDuration = SignedDuration::from_secs(10);

/// Time for which a failed fetch without a valid secret rejects further requests. It limits the
/// load on an identity service that fails.
const FAILURE_PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// Time for which further rejections cause no fetch after a fetch that did not help.
const REJECTION_PAUSE: Duration = Duration::from_secs(5);

/// Time limit for reading files, which may be on a network file system, and for the AWS SDK.
const FETCH_LIMIT: Duration = Duration::from_secs(30);

/// Source of an endpoint's credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialSettings {
    /// A file that contains only the key.
    File(PathBuf),
    /// A program that prints the key.
    Command(CommandSettings),
    /// The default chain of the AWS SDK.
    Aws(AwsSettings),
    /// Application Default Credentials of Google Cloud.
    Google(GoogleSettings),
    /// A service principal or a managed identity of Microsoft Entra.
    Entra(EntraSettings),
}

/// Selects the credentials in the default chain of the AWS SDK.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AwsSettings {
    /// Profile in the shared AWS files; `None` for `$AWS_PROFILE` or `default`.
    pub profile: Option<Name>,
    /// Region of the identity services, and of signatures if the host does not contain a region.
    pub region: Option<Name>,
}

impl fmt::Display for CredentialSettings {
    /// Describes the source without any secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "the file {}", path.display()),
            Self::Command(settings) => write!(f, "the command {}", settings.program()),
            Self::Aws(AwsSettings { profile: Some(profile), .. }) => {
                write!(f, "the AWS credentials of profile {profile}")
            }
            Self::Aws(AwsSettings { profile: None, .. }) => {
                f.write_str("the default AWS credentials")
            }
            Self::Google(settings) => settings.fmt(f),
            Self::Entra(settings) => settings.fmt(f),
        }
    }
}

/// A secret, in the form in which requests use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Secret {
    /// An API key, sent in the header that the endpoint prescribes.
    Key(Credential),
    /// An access token, sent as `authorization: Bearer`.
    Token(Credential),
    /// Keys that sign requests.
    #[cfg_attr(not(feature = "aws"), expect(dead_code, reason = "only the AWS SDK provides keys"))]
    Aws(AwsKeys),
}

/// A secret from a source, with the times that the source states.
#[derive(Clone, Debug)]
pub(crate) struct FetchedSecret {
    pub(crate) secret: Secret,
    /// The source that provided the secret, if the settings allow several.
    provider: Option<String>,
    /// Time from which the secret is fetched again in the background.
    refresh_at: Timestamp,
    /// Time from which the secret is not used; `None` if the source does not state a time.
    expires_at: Option<Timestamp>,
}

impl FetchedSecret {
    /// Creates a secret that is valid until it is replaced, and is fetched again after `interval`.
    fn lasting(secret: Secret, now: Timestamp, interval: Duration) -> Self {
        let refresh_at = after(now, signed(interval));
        Self { secret, provider: None, refresh_at, expires_at: None }
    }

    /// Creates a secret that expires. It is fetched again five minutes before its expiry, or after
    /// half of its remaining lifetime if that is later.
    fn expiring(secret: Secret, now: Timestamp, expires_at: Timestamp) -> Self {
        let half = after(now, expires_at.duration_since(now) / 2);
        let early = after(expires_at, -REFRESH_AHEAD);
        let refresh_at = half.max(early);
        Self { secret, provider: None, refresh_at, expires_at: Some(expires_at) }
    }

    /// Names the source that provided the secret.
    fn provided_by(self, provider: impl Into<String>) -> Self {
        Self { provider: Some(provider.into()), ..self }
    }

    fn is_valid(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|expires_at| now < expires_at)
    }
}

/// Reason why a credential could not be fetched. Contains no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot get the credential from {origin}: {problem}; {advice}")]
pub struct FetchError {
    /// The source.
    pub origin: Name,
    /// What failed.
    pub problem: Name,
    /// What to do.
    pub advice: &'static str,
}

/// Function that records failed fetches. While an old secret is valid, requests do not report them.
pub type FailureLog = Arc<dyn Fn(&FetchError) + Send + Sync>;

type FetchFuture<'f> = Pin<Box<dyn Future<Output = Result<FetchedSecret, String>> + Send + 'f>>;

/// Fetches a secret. Errors describe the problem without any secret.
trait SecretSource: Send + Sync {
    fn fetch(&self, now: Timestamp) -> FetchFuture<'_>;

    /// Returns what to do if a fetch fails.
    fn advice(&self) -> &'static str;

    /// Returns the time for which further rejections cause no fetch after a fetch that did not
    /// help.
    fn rejection_pause(&self) -> Duration {
        REJECTION_PAUSE
    }
}

type PendingFetch = Shared<Pin<Box<dyn Future<Output = FetchOutcome> + Send>>>;

type FetchOutcome = Result<Arc<FetchedSecret>, FetchError>;

/// A credential that is fetched from its source, cached, and replaced before it expires.
pub struct DynamicCredential {
    origin: Name,
    source: Arc<dyn SecretSource>,
    cache: Arc<Mutex<SecretCache>>,
    on_failure: Option<FailureLog>,
}

/// The latest secret and the fetch in progress.
struct SecretCache {
    current: Option<Arc<FetchedSecret>>,
    /// Time from which a request starts a fetch in the background.
    next_fetch: Timestamp,
    pending: Option<PendingFetch>,
    /// The last failure, and the time until which it is returned without another fetch.
    failure: Option<(FetchError, Timestamp)>,
    /// For each status of rejections, the time until which a rejection causes no fetch. A 403 can
    /// mean a missing permission, which must not delay the replacement of a secret after a 401.
    ignored_until: BTreeMap<u16, Timestamp>,
}

impl DynamicCredential {
    /// Creates a credential. The first request that uses the credential fetches it.
    pub fn new(settings: &CredentialSettings, on_failure: Option<FailureLog>) -> Self {
        let source: Arc<dyn SecretSource> = match settings {
            CredentialSettings::File(path) => Arc::new(file::KeyFile::new(path.clone())),
            CredentialSettings::Command(command) => {
                Arc::new(command::KeyCommand::new(command.clone()))
            }
            #[cfg(feature = "aws")]
            CredentialSettings::Aws(aws) => Arc::new(aws::AwsChain::new(aws.clone())),
            #[cfg(not(feature = "aws"))]
            CredentialSettings::Aws(_) => Arc::new(Unsupported),
            CredentialSettings::Google(google) => {
                Arc::new(google::GoogleIdentity::new(google.clone()))
            }
            CredentialSettings::Entra(entra) => Arc::new(entra::EntraIdentity::new(entra.clone())),
        };
        Self::from_source(Name::from(settings.to_string()), source, on_failure)
    }

    fn from_source(
        origin: Name,
        source: Arc<dyn SecretSource>,
        on_failure: Option<FailureLog>,
    ) -> Self {
        let cache = SecretCache {
            current: None,
            next_fetch: Timestamp::MIN,
            pending: None,
            failure: None,
            ignored_until: BTreeMap::new(),
        };
        Self { origin, source, cache: Arc::new(Mutex::new(cache)), on_failure }
    }

    /// Fetches the secret if it is not cached, and describes the source that provided it.
    pub async fn test(&self, now: Timestamp) -> Result<String, FetchError> {
        let secret = self.current(now).await?;
        Ok(match &secret.provider {
            Some(provider) => format!("{} ({provider})", self.origin),
            None => self.origin.to_string(),
        })
    }

    /// Returns the secret for a request. Waits for the source only if there is no valid secret.
    pub(crate) async fn current(&self, now: Timestamp) -> FetchOutcome {
        let pending = {
            let mut cache = lock(&self.cache);
            if let Some(secret) = cache.current.clone().filter(|secret| secret.is_valid(now)) {
                if now >= cache.next_fetch {
                    drop(self.join_or_start(&mut cache, now));
                }
                return Ok(secret);
            }
            if let Some((error, until)) = &cache.failure
                && now < *until
            {
                return Err(error.clone());
            }
            self.join_or_start(&mut cache, now).0
        };
        pending.await
    }

    /// Returns another secret after the provider rejected `rejected` with `status`. Returns `None`
    /// if the source has no other secret, or if an earlier fetch after a rejection did not help.
    pub(crate) async fn replace(
        &self,
        rejected: &FetchedSecret,
        status: u16,
        now: Timestamp,
    ) -> Option<Arc<FetchedSecret>> {
        let is_new = |secret: &FetchedSecret| secret.secret != rejected.secret;
        // The first fetch may have started before the secret changed. A second one has not.
        for _ in 0..2 {
            let (pending, is_own) = {
                let mut cache = lock(&self.cache);
                let current = cache.current.clone();
                if let Some(current) = current.filter(|it| is_new(it) && it.is_valid(now)) {
                    return Some(current);
                }
                if cache.ignored_until.get(&status).is_some_and(|until| now < *until) {
                    return None;
                }
                self.join_or_start(&mut cache, now)
            };
            match pending.await {
                Ok(secret) if is_new(&secret) => return Some(secret),
                Ok(_) | Err(_) if is_own => break,
                Ok(_) | Err(_) => {}
            }
        }
        self.ignore_rejections(status, now);
        None
    }

    /// Limits fetches after a request was rejected with a new secret too. The request may lack a
    /// permission, which no secret of this source has.
    pub(crate) fn ignore_rejections(&self, status: u16, now: Timestamp) {
        let until = after(now, signed(self.source.rejection_pause()));
        lock(&self.cache).ignored_until.insert(status, until);
    }

    /// Returns the fetch in progress, or starts one. The second value is whether it was started.
    fn join_or_start(&self, cache: &mut SecretCache, now: Timestamp) -> (PendingFetch, bool) {
        if let Some(pending) = &cache.pending {
            return (pending.clone(), false);
        }
        let (source, origin) = (Arc::clone(&self.source), Name::clone(&self.origin));
        let (shared_cache, on_failure) = (Arc::clone(&self.cache), self.on_failure.clone());
        let fetch: Pin<Box<dyn Future<Output = FetchOutcome> + Send>> = Box::pin(async move {
            // A panic in a library must not leave a fetch that never ends.
            let result = AssertUnwindSafe(source.fetch(now)).catch_unwind().await;
            let result = result.unwrap_or_else(|_| Err("the fetch panicked".to_owned()));
            let result = result.map_err(|problem| FetchError {
                origin,
                problem: Name::from(problem),
                advice: source.advice(),
            });
            if let (Err(error), Some(log)) = (&result, &on_failure) {
                log(error);
            }
            lock(&shared_cache).settle(result, now)
        });
        let pending = fetch.shared();
        cache.pending = Some(pending.clone());
        // The task completes the fetch even if all requests that wait for it are cancelled.
        drop(tokio::spawn(pending.clone()));
        (pending, true)
    }
}

impl SecretCache {
    /// Stores the result of a fetch.
    fn settle(
        &mut self,
        result: Result<FetchedSecret, FetchError>,
        now: Timestamp,
    ) -> FetchOutcome {
        self.pending = None;
        match result {
            Ok(secret) => {
                let secret = Arc::new(secret);
                self.next_fetch = secret.refresh_at;
                self.failure = None;
                self.current = Some(Arc::clone(&secret));
                Ok(secret)
            }
            Err(error) => {
                self.next_fetch = after(now, RETRY_PAUSE);
                self.failure = Some((error.clone(), after(now, FAILURE_PAUSE)));
                Err(error)
            }
        }
    }
}

impl fmt::Debug for DynamicCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamicCredential").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// Two credentials are equal if they are the same object, because each one has its own cache.
impl PartialEq for DynamicCredential {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.cache, &other.cache)
    }
}

impl Eq for DynamicCredential {}

/// A source that needs a cargo feature which is disabled.
#[cfg(not(feature = "aws"))]
struct Unsupported;

#[cfg(not(feature = "aws"))]
impl SecretSource for Unsupported {
    fn fetch(&self, _: Timestamp) -> FetchFuture<'_> {
        Box::pin(async { Err("this build does not include the AWS SDK".to_owned()) })
    }

    fn advice(&self) -> &'static str {
        "use a published binary, or build with the cargo feature `aws`"
    }
}

/// Checks a key that was read from a file or a command.
fn parse_key(text: &[u8]) -> Result<Secret, String> {
    let text = std::str::from_utf8(text).map_err(|_| "it is not valid UTF-8".to_owned())?;
    let key = text.trim();
    if key.is_empty() {
        return Err("it is empty".to_owned());
    }
    if !key.chars().all(|c| c.is_ascii_graphic()) {
        let problem = "it contains more than one word, or a character that is invalid in a header";
        return Err(problem.to_owned());
    }
    Ok(Secret::Key(Credential::new(key)))
}

/// Adds a duration, within the range of timestamps.
fn after(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.saturating_add(duration).unwrap_or(time)
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

fn lock(cache: &Mutex<SecretCache>) -> MutexGuard<'_, SecretCache> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "credential/credential_tests.rs"]
mod credential_tests;
