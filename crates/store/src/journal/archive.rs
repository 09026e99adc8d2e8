//! Implements the ports [`Archive`] and [`KeyManager`], which give operators access to the Journal.

use throughline_core::{LogHead, LogId, LogKind, StoreFuture, Tenant};
use throughline_json::Json;
use throughline_spec::{
    Archive, CreatedKey, ExportSink, Fault, KeyHead, KeyManager, RedactionPolicy, VerifySummary,
};

use crate::journal::Journal;
use crate::journal::api_keys::{KeyLimits, NewApiKey};
use crate::journal::listing::Page;
use crate::journal::verify::{VerifyFailure, VerifyReport};
use crate::query::{Listing, Order};

impl Archive for Journal {
    fn logs<'a>(
        &'a self,
        tenant: &'a Tenant,
        kind: LogKind,
        after: Option<&'a LogId>,
        limit: u32,
    ) -> StoreFuture<'a, Vec<LogHead>> {
        let page = Page { after: after.cloned(), limit, order: Order::Newest };
        self.backend.logs(tenant, page.listing(Some(kind)))
    }

    fn forks<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        limit: u32,
    ) -> StoreFuture<'a, Vec<LogHead>> {
        let page = Page { after: None, limit, order: Order::Newest };
        let listing = Listing { forks_of: Some(log.clone()), ..page.listing(None) };
        self.backend.logs(tenant, listing)
    }

    fn public_key(&self) -> String {
        Journal::public_key(self)
    }

    fn verify<'a>(&'a self, tenant: Option<&'a Tenant>) -> StoreFuture<'a, VerifySummary> {
        Box::pin(async move {
            let proof = match tenant {
                Some(tenant) => self.verify_tenant(tenant).await?,
                None => self.verify(None, &|_| {}).await?,
            };
            let VerifyReport { records, gone, segments, manifests, broken, .. } = proof;
            let broken = broken.map(|VerifyFailure { place, problem }| Fault { place, problem });
            Ok(VerifySummary { records, gone, segments, manifests, broken })
        })
    }

    fn manifest<'a>(&'a self, tenant: &'a Tenant) -> StoreFuture<'a, Json> {
        Box::pin(async move { Ok(Journal::manifest(self, tenant).await?.json()) })
    }

    fn export<'a>(
        &'a self,
        tenant: &'a Tenant,
        threads: &'a [LogId],
        policy: &'a RedactionPolicy,
        out: &'a mut dyn ExportSink,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.export_to(tenant, threads, Some(policy), out, &|_| {}).await.map(drop)
        })
    }

    fn keys<'a>(&'a self, tenant: &'a Tenant) -> StoreFuture<'a, Vec<KeyHead>> {
        Box::pin(async move {
            let keys = self.api_keys(tenant).await?.into_iter();
            let head = |key: crate::ApiKey| KeyHead {
                limits: key.limits.json(),
                id: key.id,
                label: key.label,
                created: key.created,
                revoked: key.revoked,
            };
            Ok(keys.map(head).collect())
        })
    }
}

impl KeyManager for Journal {
    fn create<'a>(
        &'a self,
        tenant: &'a Tenant,
        label: &'a str,
        limits: &'a Json,
    ) -> StoreFuture<'a, CreatedKey> {
        Box::pin(async move {
            let limits = KeyLimits::default().changed(limits)?;
            let NewApiKey { id, secret } = self.create_api_key(tenant, label, &limits).await?;
            Ok(CreatedKey { id, secret, limits: limits.json() })
        })
    }

    fn change_limits<'a>(
        &'a self,
        tenant: &'a Tenant,
        id: &'a str,
        changes: &'a Json,
    ) -> StoreFuture<'a, Option<Json>> {
        Box::pin(async move {
            let change = |limits: KeyLimits| limits.changed(changes);
            let limits = self.update_api_key_limits(tenant, id, change).await?;
            Ok(limits.map(|limits| limits.json()))
        })
    }

    fn revoke<'a>(&'a self, tenant: &'a Tenant, id: &'a str) -> StoreFuture<'a, bool> {
        Box::pin(self.revoke_api_key(tenant, id))
    }
}
