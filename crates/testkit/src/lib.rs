//! Shared test support: recorded traffic, case counts, stream splitting, temporary folders, child
//! processes, Python environments, an OpenID Connect provider, and a virtual disk that loses power.
//!
//! Other crates use this crate only as a dev-dependency. Unlike those crates, it may read
//! environment variables, print, and panic with a message on an invalid fixture. It does not depend
//! on the codecs, because their tests depend on it.

#![expect(clippy::panic, reason = "a broken fixture must fail the test that loads it")]
#![expect(clippy::print_stdout, reason = "figures and skips are test output")]

mod cases;
mod child;
mod disk;
mod folder;
mod growth;
mod large;
mod message_parts;
mod mutate;
pub mod oidc;
mod postgres;
#[cfg(feature = "power")]
pub mod power;
mod python;
mod recordings;
mod report;
mod rng;
mod seal_location;
mod split;
mod workspace;

pub use crate::cases::{cases, fuzz_seconds, proptest_config};
pub use crate::child::{Child, child_task};
pub use crate::disk::on_small_disk;
pub use crate::folder::Folder;
pub use crate::growth::{assert_linear_growth, processor_time};
pub use crate::large::{LARGE_REQUESTS, LargeRequest};
pub use crate::message_parts::is_result;
pub use crate::mutate::{MUTATIONS, Mutation, MutationTarget, Shape};
pub use crate::postgres::{Cluster, has_postgres, postgres_database, postgres_url};
pub use crate::python::python;
pub use crate::recordings::{Capture, Exchange, Recording, captures, recordings};
pub use crate::report::{ClientMatrixFilter, figure, pictures, skip};
pub use crate::rng::TestRng;
pub use crate::seal_location::{SealLocation, seals};
pub use crate::split::{chunks, split};
pub use crate::workspace::workspace_root;
