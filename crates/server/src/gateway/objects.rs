//! Tracks which tenant owns the objects that providers store: responses, files, batches and others.
//!
//! Many tenants may share one account at a provider, and the provider cannot distinguish the
//! tenants. The gateway therefore records every object id that a tenant receives. With a gateway
//! key, a request may reference only ids that the key's tenant owns.
//!
//! | file | contents |
//! |---|---|
//! | `routes.rs` | the paths that name objects, per dialect, as data |
//! | `body.rs` | the members of a request body that name objects, per dialect, as data |
//! | `bedrock.rs` | the objects of the operator's AWS account that a Converse request names |
//! | `form.rs` | the objects that forms and uploaded files name |
//! | `answers.rs` | the ids in responses, and lists reduced to the tenant's objects |
//! | `passthrough.rs` | the unrecognised paths that the operator allows |
//! | `resources.rs` | the resources that each dialect defines |
//!
//! The replay engine stores the ids and their owners.

mod answers;
mod bedrock;
mod body;
mod form;
mod passthrough;
mod resources;
mod routes;

use bytes::Bytes;
use throughline_json::{Name, Tree};
use throughline_replay::{ObjectId, ObjectKind};

pub(crate) use crate::gateway::objects::answers::{EventIdScanner, filter_list, list_entries};
pub(crate) use crate::gateway::objects::bedrock::{AwsObject, aws_objects};
pub(crate) use crate::gateway::objects::body::object_ids;
pub use crate::gateway::objects::body::object_members;
pub(crate) use crate::gateway::objects::form::{file_description, ids_in_form, ids_in_lines};
pub(crate) use crate::gateway::objects::passthrough::METHODS;
pub use crate::gateway::objects::passthrough::{InvalidPattern, Passthrough};
pub(crate) use crate::gateway::objects::resources::is_defined;
pub use crate::gateway::objects::routes::object_routes;
pub(crate) use crate::gateway::objects::routes::{
    ObjectList, ReturnedIds, find as find_route, methods_of,
};

/// An object that a request references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectRef {
    pub(crate) object: ObjectId,
    /// The body field that contains the object's id; `None` if the path contains the id.
    pub(crate) member: Option<&'static str>,
}

impl ObjectRef {
    pub(crate) fn new(kind: ObjectKind, id: Name, member: Option<&'static str>) -> Self {
        Self { object: ObjectId { kind, id }, member }
    }

    /// Returns whether the object is in Google Cloud Storage. Google reads it with the account of
    /// the request, and no tenant owns it.
    pub(crate) fn is_in_cloud_storage(&self) -> bool {
        is_storage_uri(&self.object.id)
    }
}

/// Returns whether a URI refers to an object in Google Cloud Storage.
fn is_storage_uri(uri: &str) -> bool {
    let scheme = uri.trim_start().get(..5);
    scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("gs://"))
}

/// Parses a JSON text, ignoring a byte order mark and surrounding white space.
fn parse_line(line: &Bytes) -> Option<Tree> {
    let start = line.iter().position(|byte| *byte == b'{')?;
    let is_blank = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, 0xef | 0xbb | 0xbf);
    if !line.iter().take(start).all(is_blank) {
        return None;
    }
    let end = line.iter().rposition(|byte| !byte.is_ascii_whitespace())?;
    Tree::parse(line.slice(start..=end)).ok()
}

#[cfg(test)]
#[path = "objects/objects_tests.rs"]
mod objects_tests;
