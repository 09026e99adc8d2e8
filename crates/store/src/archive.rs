//! The journal as people look at it: the port [`Archive`].

use throughline_core::{
    Archive, Boxed, Fault, Json, KeyHead, LogHead, LogId, LogKind, Proven, RedactionPolicy, Tenant,
};

use crate::backend::Order;
use crate::journal::Journal;
use crate::listing::Page;
use crate::verify::{Broken, Proof};

impl Archive for Journal {
    fn logs<'a>(
        &'a self,
        tenant: &'a Tenant,
        kind: LogKind,
        after: Option<&'a LogId>,
        limit: u32,
    ) -> Boxed<'a, Vec<LogHead>> {
        let page = Page { after: after.cloned(), limit, order: Order::Newest };
        Box::pin(async move {
            match kind {
                LogKind::Thread => self.threads(tenant, page).await,
                LogKind::Run => self.runs(tenant, None, page).await,
            }
        })
    }

    fn public_key(&self) -> String {
        Journal::public_key(self)
    }

    fn prove(&self) -> Boxed<'_, Proven> {
        Box::pin(async move {
            let Proof { records, gone, segments, manifests, broken, .. } =
                self.verify(None, &|_| {}).await?;
            let broken = broken.map(|Broken { place, problem }| Fault { place, problem });
            Ok(Proven { records, gone, segments, manifests, broken })
        })
    }

    fn manifest<'a>(&'a self, tenant: &'a Tenant) -> Boxed<'a, Json> {
        Box::pin(async move { Ok(Journal::manifest(self, tenant).await?.json()) })
    }

    fn export<'a>(&'a self, tenant: &'a Tenant, threads: &'a [LogId]) -> Boxed<'a, Vec<u8>> {
        Box::pin(async move {
            let mut lines = Vec::new();
            let policy = RedactionPolicy::default();
            Journal::export(self, tenant, threads, Some(&policy), &mut lines, &|_| {}).await?;
            Ok(lines)
        })
    }

    fn keys<'a>(&'a self, tenant: &'a Tenant) -> Boxed<'a, Vec<KeyHead>> {
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
