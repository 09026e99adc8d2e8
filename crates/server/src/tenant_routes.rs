//! Stores the routes that the operators of a tenant manage over HTTP.
//!
//! One log per tenant contains the routes. Each record contains all routes, and the latest record
//! applies. The gateway reads the log only for a model name that the configuration does not define,
//! so a tenant cannot replace the routes and models of the configuration.

use std::collections::BTreeMap;

use bytes::Bytes;
use throughline_core::{Append, Batch, LogId, LogOpening, NewRecord, Store, StoreError, Tenant};
use throughline_json::{self as json, Json, Name, Node, Tree};

use crate::object::object;
use crate::records::StoreResult;
use crate::telemetry::usage_log;

/// The kind of the records.
const KIND: &str = "routes";
/// Number of attempts to write while other nodes write.
const ATTEMPTS: usize = 20;

/// The routes of a tenant: the targets of each name, in the order in which they are tried.
pub(crate) type RouteTable = BTreeMap<Name, Vec<Name>>;

/// Returns the routes of a tenant.
pub(crate) async fn read_routes(store: &dyn Store, tenant: &Tenant) -> StoreResult<RouteTable> {
    Ok(read(store, tenant).await?.1)
}

/// Changes the routes of a tenant. If another node writes at the same time, `change` is applied to
/// the routes of that node. Nothing is written if `change` returns an error.
pub(crate) async fn change_routes<E: From<StoreError>>(
    store: &dyn Store,
    tenant: &Tenant,
    change: impl Fn(&mut RouteTable) -> Result<(), E>,
) -> Result<(), E> {
    let (owner, log) = routes_log(tenant);
    let mut last_error = None;
    for _ in 0..ATTEMPTS {
        let (last, mut routes) = read(store, tenant).await?;
        change(&mut routes)?;
        let append = Append::new(log.clone());
        let append = match last {
            0 => append.opening(LogOpening::thread()),
            last => append.expect_last(last),
        };
        let record = NewRecord::new(KIND, encode(&routes).bytes().clone());
        let batch = Batch::new(owner.clone()).append(append.record(record));
        match store.commit(batch).await {
            Ok(_) => return Ok(()),
            Err(error @ StoreError::Conflict { .. }) => last_error = Some(error),
            // Another node has created the log.
            Err(error @ StoreError::Invalid(_)) if last == 0 => last_error = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    last_error.map_or(Ok(()), |error| Err(error.into()))
}

/// Returns the number of the latest record, and the routes that it contains.
async fn read(store: &dyn Store, tenant: &Tenant) -> StoreResult<(u64, RouteTable)> {
    let (owner, log) = routes_log(tenant);
    let Some(head) = store.log(&owner, &log).await? else { return Ok((0, RouteTable::new())) };
    let records = store.read(&owner, &log, head.last.saturating_sub(1), 1).await?;
    let content = records.first().and_then(|record| record.content.bytes());
    Ok((head.last, content.map(decode).unwrap_or_default()))
}

fn encode(routes: &RouteTable) -> Json {
    let rows = routes.iter().map(|(model, targets)| route_json(model, targets));
    object! { "v": 1, "routes": rows.collect::<Vec<_>>() }
}

/// Describes a route.
pub(crate) fn route_json(model: &Name, targets: &[Name]) -> Json {
    json::object(|o| {
        o.string("model", model).array("targets", |a| {
            for target in targets {
                a.string(target);
            }
        });
    })
}

fn decode(content: &Bytes) -> RouteTable {
    let Ok(tree) = Tree::parse(content.clone()) else { return RouteTable::new() };
    let rows = tree.root().get("routes").into_iter().flat_map(Node::elements);
    let targets = |row: Node<'_>| -> Option<Vec<Name>> {
        Some(row.get("targets")?.elements().filter_map(Node::name).collect())
    };
    rows.filter_map(|row| Some((row.name_of("model")?, targets(row)?))).collect()
}

/// Returns the tenant and the log that contain the routes of a tenant. The log does not belong to
/// the tenant, so retention keeps it.
fn routes_log(tenant: &Tenant) -> (Tenant, LogId) {
    let name = blake3::hash(tenant.0.as_bytes()).to_hex();
    (usage_log().0, LogId::from(format!("routes-{}", &name[..32])))
}
