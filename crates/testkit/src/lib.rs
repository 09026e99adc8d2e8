//! What the tests of every crate share: the recorded traffic, the number of cases to try, ways to cut a stream into
//! chunks, folders to write to, processes to kill, environments of Python, and a disk that loses power.
//!
//! This crate is a dev-dependency only, so it may do what the others may not: read its own
//! environment variables, print, and panic with a message when a fixture is not what it should be.
//! It knows nothing of the codecs, because their own tests depend on it.

#![expect(clippy::panic, reason = "a broken fixture must fail the test that loads it")]
#![expect(clippy::print_stdout, reason = "figures and skips belong in the output of the test")]

mod cases;
mod child;
mod dice;
mod disk;
mod folder;
mod growth;
mod large;
mod postgres;
#[cfg(feature = "power")]
pub mod power;
mod python;
mod recordings;
mod report;
mod split;
mod spoil;
mod workspace;

pub use crate::cases::{cases, fuzz_seconds, proptest_config};
pub use crate::child::{Child, child_task};
pub use crate::dice::Dice;
pub use crate::disk::on_small_disk;
pub use crate::folder::Folder;
pub use crate::growth::{grows_in_proportion, processor_time};
pub use crate::large::{LARGE_REQUESTS, LargeRequest};
pub use crate::postgres::{Cluster, has_postgres, postgres_database, postgres_url};
pub use crate::python::python;
pub use crate::recordings::{Capture, Exchange, Recording, captures, recordings};
pub use crate::report::{figure, pictures, skip};
pub use crate::split::{chunks, split};
pub use crate::spoil::{OPERATORS, On, Operator, Place, Shape, is_result, seals};
pub use crate::workspace::workspace_root;
